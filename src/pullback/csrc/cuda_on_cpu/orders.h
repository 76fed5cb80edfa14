/// Runs a kernel of pullback's in every order of its threads and compares the outputs.
///
/// Included by glue.h where CUDA_ON_CPU_EVERY_ORDER is defined. A result that depends on the order
/// is a fault; one that does not may still hide a race, which the race detector sees in any order.
#pragma once

#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <vector>

#include "core.h"

namespace cuda_on_cpu {

/// One output of a call, as the comparison needs it. `code` and `bits` are DLPack's.
struct Written {
  void* data;
  int64_t count;
  int code;
  int bits;
  const char* name;

  size_t bytes() const { return data ? static_cast<size_t>(count) * bits / 8 : 0; }
};

inline double number(const Written& written, const char* at) {
  switch (written.bits) {
    case 64: {
      double value;
      memcpy(&value, at, 8);
      return value;
    }
    case 32: {
      float value;
      memcpy(&value, at, 4);
      return value;
    }
    default: break;
  }
  uint16_t stored;
  memcpy(&stored, at, 2);
  if (written.code == 4) {  // bfloat16: the upper half of a float
    const uint32_t wide = uint32_t(stored) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
  }
  const int exponent = stored >> 10 & 31, fraction = stored & 1023;
  const double value = exponent == 31 ? (fraction ? NAN : INFINITY)
                       : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                      : ldexp(fraction, -24);
  return stored & 0x8000 ? -value : value;
}

inline double epsilon(const Written& written) {
  return written.bits == 64   ? DBL_EPSILON
         : written.bits == 32 ? FLT_EPSILON
         : written.code == 4  ? 0x1p-7
                              : 0x1p-10;
}

/// The first element in which two results differ by more than another order of additions can
/// explain, or -1. `a` and `b` are copies of the output's memory after each.
inline int64_t first_difference(const Written& written, const char* a, const char* b) {
  const size_t step = written.bits / 8;
  const bool floating = written.code == 2 || written.code == 4;
  double largest = 0;
  for (int64_t i = 0; floating && i < written.count; ++i) {
    const double value = std::fabs(number(written, a + i * step));
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  // Allows sums of some thousand terms; a missing barrier is far beyond that.
  const double allowed = std::min(1024 * epsilon(written), 0.125) * largest;
  for (int64_t i = 0; i < written.count; ++i) {
    const char *x = a + i * step, *y = b + i * step;
    if (!memcmp(x, y, step)) continue;
    if (!floating) return i;
    const double left = number(written, x), right = number(written, y);
    const bool same = left == right || (std::isnan(left) && std::isnan(right)) ||
                      std::fabs(left - right) <= allowed;
    if (!same) return i;
  }
  return -1;
}

template <class Run>
void in_every_order(std::vector<Written> outputs, Run run) {
  const auto state = [&] {
    std::vector<std::vector<char>> kept;
    for (const Written& output : outputs) {
      const char* data = static_cast<const char*>(output.data);
      kept.emplace_back(data, data + output.bytes());
    }
    return kept;
  };
  const auto restore = [&](const std::vector<std::vector<char>>& kept) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!kept[i].empty()) memcpy(outputs[i].data, kept[i].data(), kept[i].size());
    }
  };
  constexpr const char* orders[] = {"forward", "reverse", "random"};
  const auto before = state();
  std::vector<std::vector<char>> forward;
  for (int order = 0; order < 3; ++order) {
    OrderOfThreads chosen(order);
    restore(before);
    run();
    if (!order) {
      forward = state();
      continue;
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].bytes()) continue;
      const char* now = static_cast<const char*>(outputs[i].data);
      const int64_t at = first_difference(outputs[i], forward[i].data(), now);
      if (at < 0) continue;
      const size_t step = outputs[i].bits / 8;
      char detail[160] = "";
      if (outputs[i].code == 2 || outputs[i].code == 4) {
        snprintf(detail, sizeof detail, "\n    values: %g forward, %g %s",
                 number(outputs[i], forward[i].data() + at * step),
                 number(outputs[i], now + at * step), orders[order]);
      }
      restore(forward);
      stop("cuda-order [PB232]",
           "'%s' depends on the order in which threads run%s\n    first:  element %lld of %lld\n"
           "    help:   look for the race: pullback cuda race SCRIPT, or check=\"race\"",
           outputs[i].name, detail, static_cast<long long>(at),
           static_cast<long long>(outputs[i].count));
    }
  }
  restore(forward);
}

}  // namespace cuda_on_cpu
