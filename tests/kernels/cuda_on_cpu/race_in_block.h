/// Rules within a block: barriers, warps, bytes. Each kernel in a faulty form and a repaired one.
#pragma once

#include "race_memory.h"

namespace {

std::string missing_barrier(bool repaired) {
  Launch launch(256);
  launch.block(0, s);
  launch.threads([](unsigned t) { s[t] = x[t]; });
  if (repaired) launch.barrier();
  launch.threads([](unsigned t) { y[t] = s[255 - t]; });
  return launch.end();
}

std::string barrier_in_reduction(bool repaired) {
  Launch launch(64);
  launch.block(0, s);
  launch.threads([](unsigned t) { s[t] = float(t + 1); });
  launch.barrier();
  for (unsigned k = 32; k > 0; k /= 2) {
    launch.threads([&](unsigned t) {
      if (t < k) s[t] += s[t + k];
    });
    if (repaired) launch.barrier();
  }
  return launch.end();
}

/// The next round writes what the last one may still read.
std::string barrier_at_end_of_loop(bool repaired) {
  Launch launch(64);
  launch.block(0, s);
  for (unsigned round = 0; round < 3; ++round) {
    launch.threads([&](unsigned t) { s[t] = float(t + round); });
    race::barrier_at(__FILE__, __LINE__);
    launch.barrier();
    launch.threads([](unsigned t) { y[t] = s[(t + 1) % 64]; });
    if (repaired) launch.barrier();
  }
  return launch.end();
}

std::string missing_syncwarp(bool repaired) {
  Launch launch(64);
  launch.block(0, s);
  launch.threads([](unsigned t) { s[t] = float(t); });
  if (repaired) launch.warps_meet();
  launch.threads([](unsigned t) { y[t] = s[t ^ 1]; });
  return launch.end();
}

/// A collective of one half of the warp orders nothing for the other.
std::string collective_of_few(bool repaired) {
  Launch launch(32);
  launch.block(0, s);
  launch.threads([](unsigned t) { s[t] = float(t); });
  launch.warps_meet(repaired ? ~0u : 0xFFFFu);
  launch.threads([](unsigned t) { y[t] = s[t ^ 1]; });
  return launch.end();
}

/// Warp by warp is not enough for what another warp reads.
std::string collective_for_block(bool repaired) {
  Launch launch(64);
  launch.block(0, s);
  launch.threads([](unsigned t) { s[t] = float(t); });
  launch.warps_meet();
  if (repaired) launch.barrier();
  launch.threads([](unsigned t) { y[t] = s[t ^ 32]; });
  return launch.end();
}

/// Lane 0 learns from lane 1, and lane 2 then from lane 0.
std::string collectives_in_a_row(bool repaired) {
  Launch launch(32);
  launch.block(0, s);
  launch.thread(1, [] { s[1] = 1; });
  race::collective(0, 0b011);
  if (repaired) race::collective(0, 0b101);
  launch.thread(2, [] { use(s[1]); });
  return launch.end();
}

/// Before Volta a warp ran in step, and `volatile` was all that was needed.
std::string warp_in_step(bool repaired) {
  volatile float* const v = s;
  Launch launch(64);
  launch.block(0, s);
  launch.threads([](unsigned t) { s[t] = float(t + 1); });
  launch.barrier();
  for (unsigned k = 16; k > 0; k /= 2) {
    for (unsigned t = 0; t < 32; ++t) {
      launch.thread(t, [&] {
        if (t < k) v[t] = v[t] + v[t + k];
      });
    }
    if (repaired) launch.warps_meet();
  }
  return launch.end();
}

std::string sixteen_bytes(bool repaired) {
  Launch launch(32);
  launch.block(0, fours);
  launch.threads([](unsigned t) { fours[t].at[3] = float(t); });
  if (repaired) launch.barrier();
  launch.threads([](unsigned t) { *reinterpret_cast<Four*>(y + 4 * t) = fours[(t + 1) % 32]; });
  return launch.end();
}

std::string copies(bool repaired) {
  Launch launch(32);
  launch.block(0, s);
  size_t bytes = 16;
  asm volatile("" : "+r"(bytes));
  launch.threads([&](unsigned t) { std::memcpy(s + 4 * t, x, bytes); });
  if (repaired) launch.barrier();
  launch.threads([&](unsigned t) { std::memmove(y + 4 * t, s + 4 * t + (t < 31) * 2, bytes); });
  return launch.end();
}

std::string cleared_memory(bool repaired) {
  Launch launch(32);
  launch.block(0, s);
  size_t bytes = 64;
  asm volatile("" : "+r"(bytes));
  launch.thread(0, [&] { std::memset(s, 0, bytes); });
  if (repaired) launch.barrier();
  launch.threads([&](unsigned t) { use(s[t % 16]); });
  return launch.end();
}

/// Neighbouring bytes and padding belong to different threads: no race, and one where they overlap.
std::string neighbouring_bytes(bool repaired) {
  auto* const bytes = reinterpret_cast<unsigned char*>(s);
  Launch launch(64);
  launch.block(0, s);
  launch.threads([&](unsigned t) { bytes[repaired ? t : t / 2] = static_cast<unsigned char>(t); });
  launch.threads([&](unsigned t) {
    if (t % 2) {
      padded[t / 2].c = static_cast<char>(t);
    } else {
      padded[t / 2].f = float(t);
    }
  });
  return launch.end();
}

std::string threads_that_leave(bool repaired) {
  Launch launch(64);
  launch.block(0, s);
  launch.threads([](unsigned t) {
    s[t] = float(t);
    if (t >= 40) race::thread_ends(t);
  });
  if (repaired) race::barrier(40);
  for (unsigned t = 0; t < 24; ++t) launch.thread(t, [&] { use(s[t + 40]); });
  return launch.end();
}

/// The lanes that are left meet, which is after the others left.
std::string lanes_that_leave(bool repaired) {
  Launch launch(32);
  launch.block(0, s);
  launch.threads([](unsigned t) {
    s[t] = float(t);
    if (t >= 16) race::thread_ends(t);
  });
  if (repaired) race::collective(0, 0xFFFF);
  for (unsigned t = 0; t < 16; ++t) launch.thread(t, [&] { use(s[t + 16]); });
  return launch.end();
}

std::string private_memory(bool repaired) {
  alignas(4096) static char stack[8192];
  if (repaired) race::private_memory(stack, stack + sizeof stack);
  Launch launch(64);
  launch.block(0, s);
  launch.threads([&](unsigned t) { std::memset(stack, int(t), 64); });
  return launch.end();
}

/// What an earlier block did to the same memory is no race, and was not written by this one.
std::string unwritten_shared(bool repaired) {
  Launch launch(32, 2);
  for (unsigned b = 0; b < 2; ++b) {
    launch.block(b, s);
    if (b == 0 || repaired) launch.threads([](unsigned t) { s[t] = float(t); });
    launch.barrier();
    launch.threads([](unsigned t) { use(s[31 - t]); });
  }
  return launch.end();
}

/// Bytes of which some are written may be read as a whole.
std::string partly_written(bool repaired) {
  Launch launch(32);
  launch.block(0, fours);
  launch.threads([&](unsigned t) {
    if (repaired) fours[t].at[1] = 1;
    *reinterpret_cast<Four*>(y + 4 * t) = fours[t];
  });
  return launch.end();
}

}  // namespace
