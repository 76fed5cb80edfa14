/// Inlined because a call would stop the loop around it: sine, cosine and arctangent of floats.
///
/// Only where the processor has fused multiply-add; elsewhere the libraries' functions are used.
#pragma once

#include "fused.h"

namespace pullback::formula {

#if defined(PULLBACK_INLINE_4ULP)

/// Up to here an argument less a multiple of π has its digits; beyond, the C library's functions.
constexpr float turns_end = 0x1p16;

template <class Function>
[[gnu::noinline, gnu::cold]] Real of_many_turns(Function function, Real x) {
  return each_lane(function, x);
}

/// A value where x has few turns, and what the C library's function gives where it has more.
template <class Function>
PULLBACK_INLINE Real unless_far(Real x, Real value, Function function) {
  const Truth far = ge(abs(x), splat(turns_end));
  if (!any(far)) [[likely]]
    return value;
  return where(far, of_many_turns(function, x), value);
}

/// x - n π for a whole n or half of an odd one, π in three parts: the first difference is exact. None
/// of the parts is below 0, so that -0.0 keeps its sign.
PULLBACK_INLINE Real less_turns(Real x, Real n) {
  return fma(n, splat(-1.07806059e-14),
             fma(n, splat(-1.50995788e-07), fma(n, splat(-3.1415925), x)));
}

/// sin(r) for |r| <= π/2, and minus that where the lowest bit of `turns` is 1.
PULLBACK_INLINE Real sin_of_rest(Real r, Truth turns) {
  // (sin(r)/r - 1)/r², minimax, relative to sin(r): to 2⁻²⁷; the first coefficient is less by so much
  // that no rounding passes 1, and cos(0) is 1.
  const Real square = r * r;
  const Real beyond = horner(square, 2.604967449e-6, -1.9809658988378942e-4, 8.3330683410167694e-3,
                             -1.6666659712791443e-1);
  return Real(Truth(r * fma(square, beyond, splat(1.0))) ^ (turns << 31));
}

PULLBACK_INLINE Real sin(Real x) {
  // The lowest bit of a number plus this is that of the nearest integer.
  const Real shift = splat(0x1.8p23), sum = fma(x, splat(0.318309886183790672), shift);
  const Real value = sin_of_rest(less_turns(x, sum - shift), Truth(sum));
  return unless_far(x, value, [](double lane) { return __builtin_sin(lane); });
}

/// Minus the sine of what x is beyond the nearest odd multiple of π/2, turned as often.
PULLBACK_INLINE Real cos(Real x) {
  const Real shift = splat(0x1.8p23), half = splat(0.5);
  const Real sum = fma(x, splat(0.318309886183790672), -half) + shift;
  const Real value = sin_of_rest(less_turns(x, (sum - shift) + half), ~Truth(sum));
  return unless_far(x, value, [](double lane) { return __builtin_cos(lane); });
}

/// For |x| > 1 it is π/2 less the arctangent of 1/|x|.
PULLBACK_INLINE Real atan(Real x) {
  const Real size = abs(x), one = splat(1.0);
  const Truth steep = gt(size, one);
  const Real t = where(steep, -one, size) / where(steep, size, one);
  // (atan(t)/t - 1)/t², minimax, relative to atan(t): to 2⁻²⁵. Even and odd powers apart.
  const Real square = t * t, fourth = square * square;
  const Real even =
      horner(fourth, -0.0163679483859, -0.0755221695933, -0.142110555725, -0.333331527367);
  const Real odd = horner(fourth, 0.00292069734918, 0.043211893442, 0.106660058185, 0.199937728608);
  const Real rest = fma(t * square, fma(odd, square, even), t);
  const Real value = where(steep, splat(1.57079632679489661923), Real{}) + rest;
  return Real(Truth(value) | (Truth(x) & sign_bit));
}

#endif

}  // namespace pullback::formula
