/// Doubles where the formula computes in float: for functions that lose too many digits in float.
///
/// `Doubles` is one register of them: all lanes, or half of the lanes where Compute is float. Then
/// it is a third V, beside Real and double, with the few functions that special.h needs.
#pragma once

#include "whole.h"

namespace pullback::formula {

using Doubles [[gnu::vector_size(register_bytes)]] = double;

#if !PULLBACK_DOUBLE

using Choice = decltype(Doubles{} < Doubles{});
constexpr int64_t double_sign_bit = INT64_MIN;

// Where float has vector functions, double has them too, and any of these is exact enough here.
#if defined(PULLBACK_LANE_BY_LANE)
#define PULLBACK_DEFINE_WIDE(name)                                            \
  PULLBACK_INLINE Doubles name(Doubles x) {                                   \
    for (int k = 0; k < lanes / 2; ++k) x[k] = __builtin_##name(x[k]);        \
    return x;                                                                 \
  }
#else
#if PULLBACK_LANES == 16
#define PULLBACK_HALF_COUNT 8
#elif PULLBACK_LANES == 8
#define PULLBACK_HALF_COUNT 4
#else
#define PULLBACK_HALF_COUNT 2
#endif
#if defined(PULLBACK_LIBMVEC)
#define PULLBACK_WIDE(name) PULLBACK_JOIN5(PULLBACK_ISA, PULLBACK_HALF_COUNT, v, _##name, )
#else
#define PULLBACK_WIDE(name) PULLBACK_JOIN5(Sleef_, name, d, PULLBACK_HALF_COUNT, _u10)
#endif
#define PULLBACK_DEFINE_WIDE(name)                                            \
  extern "C" [[gnu::const]] Doubles PULLBACK_WIDE(name)(Doubles) noexcept;    \
  PULLBACK_INLINE Doubles name(Doubles x) { return PULLBACK_WIDE(name)(x); }
#endif
PULLBACK_DEFINE_WIDE(log)
PULLBACK_DEFINE_WIDE(tan)

template <>
PULLBACK_INLINE Doubles constant<Doubles>(double value) {
  return value - Doubles{};
}
PULLBACK_INLINE Choice lt(Doubles a, Doubles b) { return a < b; }
PULLBACK_INLINE Choice le(Doubles a, Doubles b) { return a <= b; }
PULLBACK_INLINE Choice eq(Doubles a, Doubles b) { return a == b; }
PULLBACK_INLINE Doubles where(Choice condition, Doubles a, Doubles b) { return condition ? a : b; }
PULLBACK_INLINE bool any(Choice condition) {
  int64_t found = 0;
  for (int k = 0; k < lanes / 2; ++k) found |= condition[k];
  return found != 0;
}
PULLBACK_INLINE Doubles abs(Doubles x) { return Doubles(Choice(x) & ~double_sign_bit); }
PULLBACK_INLINE Doubles copysign(Doubles x, Doubles sign) {
  return Doubles((Choice(x) & ~double_sign_bit) | (Choice(sign) & double_sign_bit));
}
PULLBACK_INLINE Doubles round(Doubles x) {
  const Doubles rounded = copysign((abs(x) + 0x1p52) - 0x1p52, x);
  return where(lt(abs(x), constant<Doubles>(0x1p52)), rounded, x);
}
PULLBACK_INLINE Doubles sqrt(Doubles x) {
  Doubles y;
  for (int k = 0; k < lanes / 2; ++k) y[k] = __builtin_sqrt(x[k]);
  return y;
}

#endif

/// Computes in doubles, and rounds the result to Real.
template <class Function>
PULLBACK_INLINE Real in_doubles(Function function, Real x) {
  Lanes<double> wide = __builtin_convertvector(x, Lanes<double>);
  Doubles part[sizeof wide / sizeof(Doubles)];
  __builtin_memcpy(part, &wide, sizeof wide);
  for (Doubles& some : part) some = function(some);
  __builtin_memcpy(&wide, part, sizeof wide);
  return __builtin_convertvector(wide, Real);
}

}  // namespace pullback::formula
