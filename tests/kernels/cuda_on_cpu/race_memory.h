/// What the kernels of race_rules.cpp work on, and with.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>

#include "race_rules.h"

namespace {

float s[1024], x[1024], y[1024], total;
int counter, flag, lock;
bool last;
struct Padded {
  char c;
  float f;
} padded[64];
struct alignas(16) Four {
  float at[4];
} fours[64];

/// A read whose value is needed.
template <class T>
void use(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    asm volatile("" : : "x"(value));
  } else {
    asm volatile("" : : "r"(value));
  }
}

int atomic_add(int* p, int value) {
  race::atomic(p, sizeof *p, __builtin_return_address(0));
  return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);
}

}  // namespace
