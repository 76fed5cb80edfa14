/// Rules for fences, atomics and values. Each kernel in a faulty form and a repaired one.
#pragma once

#include "race_memory.h"

namespace {

std::string unatomic_sum(bool repaired) {
  total = 0;
  Launch launch(32, 2);
  for (unsigned b = 0; b < 2; ++b) {
    launch.block(b, s);
    launch.threads([&](unsigned) {
      if (repaired) {
        atomic_add(&counter, 1);
      } else {
        total += 1;
      }
    });
  }
  return launch.end();
}

/// The last block to finish adds what all have written. `fence`: by whom; 0: nobody.
std::string last_block(int fence) {
  counter = 0;
  std::memset(y, 0, sizeof y);
  Launch launch(32, 8);
  for (unsigned b = 0; b < 8; ++b) {
    launch.block(b, last);
    launch.threads([&](unsigned t) {
      y[b * 32 + t] = float(b + t + 1);
      if (fence == 2) race::fence();
    });
    launch.barrier();
    launch.thread(0, [&] {
      if (fence == 1) race::fence();
      last = atomic_add(&counter, 1) == 7;
    });
    launch.barrier();
    launch.threads([&](unsigned t) {
      for (unsigned i = 0; last && i < 8; ++i) use(y[i * 32 + t]);
      if (last && t == 0) counter = 0;
    });
  }
  return launch.end();
}
std::string fence_of_one(bool repaired) { return last_block(repaired ? 1 : 0); }
std::string fence_of_all(bool repaired) { return last_block(repaired ? 2 : 0); }

/// A fence before the write publishes nothing of it.
std::string fence_too_early(bool repaired) {
  Launch launch(1, 2);
  launch.block(0, s);
  launch.thread(0, [&] {
    if (!repaired) race::fence();
    y[0] += 1;
    if (repaired) race::fence();
    atomic_add(&counter, 1);
  });
  launch.block(1, s);
  launch.thread(0, [] {
    atomic_add(&counter, 1);
    use(y[0]);
  });
  return launch.end();
}

/// Knowledge goes on: from block 0 to 1 by one counter, from 1 to 2 by another.
std::string fences_in_a_row(bool repaired) {
  Launch launch(1, 3);
  launch.block(0, s);
  launch.thread(0, [] {
    y[0] += 1;
    race::fence();
    atomic_add(&counter, 1);
  });
  launch.block(1, s);
  launch.thread(0, [&] {
    atomic_add(&counter, 1);
    if (repaired) race::fence();
    atomic_add(&flag, 1);
  });
  launch.block(2, s);
  launch.thread(0, [] {
    atomic_add(&flag, 1);
    use(y[0]);
  });
  return launch.end();
}

std::string critical_section(bool repaired) {
  Launch launch(32, 3);
  for (unsigned b = 0; b < 3; ++b) {
    launch.block(b, s);
    launch.threads([&](unsigned) {
      atomic_add(&lock, 1);
      total += 1;
      if (repaired) race::fence();
      atomic_add(&lock, -1);
    });
  }
  return launch.end();
}

/// Each block waits for the one before it, at a volatile flag.
std::string volatile_flag(bool repaired) {
  flag = 0;
  volatile int* const seen = &flag;
  Launch launch(1, 3);
  for (unsigned b = 0; b < 3; ++b) {
    launch.block(b, s);
    launch.thread(0, [&] {
      use(*seen == int(b));
      total += 1;
      if (repaired) race::fence();
      *seen = int(b + 1);
    });
  }
  return launch.end();
}

std::string blocks_that_read_neighbours(bool repaired) {
  Launch launch(32, 4);
  for (unsigned b = 0; b < 4; ++b) {
    launch.block(b, s);
    launch.threads([&](unsigned t) {
      y[b * 32 + t] += 1;
      use(y[(b * 32 + t + (repaired ? 0 : 1)) % 128]);
    });
  }
  return launch.end();
}

std::string atomic_and_plain_read(bool repaired) {
  Launch launch(64);
  int& count = reinterpret_cast<int&>(s[0]);
  launch.block(0, s);
  launch.thread(0, [&] { count = 0; });
  launch.barrier();
  launch.threads([&](unsigned) { atomic_add(&count, 1); });
  if (repaired) launch.barrier();
  launch.threads([&](unsigned) { use(count); });
  return launch.end();
}

std::string atomic_and_plain_write(bool repaired) {
  Launch launch(64);
  int& count = reinterpret_cast<int&>(s[0]);
  launch.block(0, s);
  launch.thread(0, [&] { count = 0; });
  if (repaired) launch.barrier();
  launch.threads([&](unsigned) { atomic_add(&count, 1); });
  return launch.end();
}

std::string different_values(bool repaired) {
  Launch launch(64);
  launch.block(0, s);
  launch.threads([&](unsigned t) { s[0] = repaired ? 7 : float(t); });
  return launch.end();
}

/// Who reads a flag that all set to one value must still wait for it.
std::string flag_that_all_set(bool repaired) {
  Launch launch(64);
  launch.block(0, last);
  launch.thread(0, [] { last = false; });
  launch.barrier();
  launch.threads([](unsigned t) {
    if (t > 5) last = true;
  });
  if (repaired) launch.barrier();
  launch.threads([](unsigned) { use(last); });
  return launch.end();
}

/// The programming guide's atomicAdd() of doubles begins with a plain read.
std::string compare_and_swap(bool repaired) {
  counter = 0;
  Launch launch(64);
  launch.block(0, s);
  launch.threads([&](unsigned) {
    const int old = counter;
    use(old);
    if (repaired) atomic_add(&counter, 1);
    if (!repaired) counter = old + 1;
  });
  return launch.end();
}

std::string memory_that_is_freed(bool repaired) {
  Launch launch(2);
  launch.block(0, s);
  launch.threads([&](unsigned t) {
    if (repaired) race::fresh_memory(x, 8);
    x[0] = float(t) + 1;
  });
  return launch.end();
}

/// Each launch is after all that was before.
std::string launches(bool repaired) {
  Launch first(32);
  first.block(0, s);
  first.threads([](unsigned t) { y[t] += 1; });
  if (repaired) {
    if (const auto report = first.end(); !report.empty()) return report;
    Launch second(32);
    second.block(0, s);
    second.threads([](unsigned t) { use(y[31 - t]); });
    return second.end();
  }
  first.threads([](unsigned t) { use(y[31 - t]); });
  return first.end();
}

}  // namespace
