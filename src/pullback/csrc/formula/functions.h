/// Functions built from those of the libraries: elementary ones, each right at its extremes.
///
/// V is Real or double.
#pragma once

#include "exponential.h"
#include "trigonometric.h"

namespace pullback::formula {

PULLBACK_INLINE Real copysign(Real x, Real sign) {
  return Real((Truth(x) & ~sign_bit) | (Truth(sign) & sign_bit));
}
PULLBACK_INLINE double copysign(double x, double sign) { return __builtin_copysign(x, sign); }

PULLBACK_INLINE Truth signbit(Real x) { return Truth(Truth(x) < 0); }
PULLBACK_INLINE bool signbit(double x) { return __builtin_signbit(x); }
template <class V>
PULLBACK_INLINE auto isnan(V x) {
  return ne(x, x);
}
template <class V>
PULLBACK_INLINE auto isinf(V x) {
  return eq(abs(x), constant<V>(__builtin_inf()));
}
template <class V>
PULLBACK_INLINE auto isfinite(V x) {
  return lt(abs(x), constant<V>(__builtin_inf()));
}

PULLBACK_INLINE Real sqrt(Real x) {
  // g++ makes one instruction of it, by its SLP vectoriser and not by that of loops, which may
  // decline. Where it does not, the values are the same.
  Real y;
  for (int k = 0; k < lanes; ++k) {
    y[k] = __is_same(Compute, float) ? __builtin_sqrtf(x[k]) : __builtin_sqrt(x[k]);
  }
  return y;
}
PULLBACK_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
template <class V>
PULLBACK_INLINE V reciprocal(V x) {
  return constant<V>(1) / x;
}
template <class V>
PULLBACK_INLINE V rsqrt(V x) {
  return constant<V>(1) / sqrt(x);
}

/// To the nearest integer, halves to even: a number as large as `whole_from` is an integer already,
/// and a smaller one loses its fraction when it is added to that.
PULLBACK_INLINE Real round(Real x) {
  const Real whole_from = splat(__is_same(Compute, float) ? 0x1p23 : 0x1p52);
  const Real rounded = copysign((abs(x) + whole_from) - whole_from, x);
  return where(lt(abs(x), whole_from), rounded, x);
}
PULLBACK_INLINE Real floor(Real x) {
  const Real near = round(x);
  return copysign(where(gt(near, x), near - splat(1.0), near), x);
}
PULLBACK_INLINE Real ceil(Real x) { return -floor(-x); }
PULLBACK_INLINE Real trunc(Real x) { return copysign(floor(abs(x)), x); }
PULLBACK_INLINE double round(double x) { return __builtin_roundeven(x); }
PULLBACK_INLINE double floor(double x) { return __builtin_floor(x); }
PULLBACK_INLINE double ceil(double x) { return __builtin_ceil(x); }
PULLBACK_INLINE double trunc(double x) { return __builtin_trunc(x); }
template <class V>
PULLBACK_INLINE V frac(V x) {
  return x - trunc(x);
}

// The comparisons are written so that a NaN is kept (maximum), ignored (fmax), or gives 0 (sign).
// Of a maximum of many `a` is one of all before: comparing it with itself takes GCC exponential time.
template <class V>
PULLBACK_INLINE V maximum(V a, V b) {
  return where(logical_or(le(a, b), ne(b, b)), b, a);
}
template <class V>
PULLBACK_INLINE V minimum(V a, V b) {
  return where(logical_or(ge(a, b), ne(b, b)), b, a);
}
template <class V>
PULLBACK_INLINE V fmax(V a, V b) {
  return where(logical_or(ge(a, b), isnan(b)), a, b);
}
template <class V>
PULLBACK_INLINE V fmin(V a, V b) {
  return where(logical_or(le(a, b), isnan(b)), a, b);
}
template <class V>
PULLBACK_INLINE V relu(V x) {
  const V zero{};
  return where(lt(x, zero), zero, x);
}
template <class V>
PULLBACK_INLINE V sign(V x) {
  return real(gt(x, V{})) - real(lt(x, V{}));
}

PULLBACK_INLINE double expm1_beside_exp(double x) { return expm1(x); }
#if !defined(PULLBACK_INLINE_4ULP)
PULLBACK_INLINE Real expm1_beside_exp(Real x) { return expm1(x); }
#endif

// exp(-|x|) cannot overflow, and keeps the digits of sigmoid at a very negative x. The gradient and
// sigmoid(-x) have it too, and so share it.
template <class V>
PULLBACK_INLINE V sigmoid(V x) {
  const V small = exp_of_minus(abs(x)), one = constant<V>(1);
  return where(signbit(x), small, one) / (one + small);
}
/// sigmoid(-x)
template <class V>
PULLBACK_INLINE V sigmoid_of_minus(V x) {
  const V small = exp_of_minus(abs(x)), one = constant<V>(1);
  return where(signbit(x), one, small) / (one + small);
}
/// Where nothing shares the exponential; exponential.h has a faster one.
PULLBACK_INLINE double sigmoid_alone(double x) { return sigmoid(x); }
#if !defined(PULLBACK_INLINE_EXP)
PULLBACK_INLINE Real sigmoid_alone(Real x) { return sigmoid(x); }
#endif
template <class V>
PULLBACK_INLINE V softplus(V x) {
  return at_least(x, V{}) + log1p_of_fraction(exp_of_minus(abs(x)));
}
template <class V>
PULLBACK_INLINE V log_sigmoid(V x) {
  return at_most(x, V{}) - log1p_of_fraction(exp_of_minus(abs(x)));
}

template <class V>
PULLBACK_INLINE V logit(V x) {
  return log(x / (constant<V>(1) - x));
}

/// tanh(softplus(x)) is n / (n + 2) with n = e²ˣ + 2eˣ. From 20 on it is 1 to the last bit.
template <class V>
PULLBACK_INLINE V tanh_softplus(V x) {
  // Written as the derivative has it, which then shares all of it.
  const V two = constant<V>(2), most = constant<V>(20), power = exp(where(gt(x, most), most, x));
  const V n = power * (power + two);
  return n / (n + two);
}

/// sin(πx)/(πx). We take the sine of the part of x beyond an integer: the rounding error of πx
/// grows with x, until no digit of its sine is left.
template <class V>
PULLBACK_INLINE V sinc(V x) {
  const V pi = constant<V>(3.14159265358979323846), whole = round(x);
  const V half = whole * constant<V>(0.5);
  const V sine = sin(pi * (x - whole));
  const V turned = where(eq(half, round(half)), sine, -sine);
  return where(eq(x, V{}), constant<V>(1), turned / (pi * x));
}

/// The rounding error of `product` = x * factor.
PULLBACK_INLINE double lost(double x, double factor, double product) {
  return __builtin_fma(x, factor, -product);
}
PULLBACK_INLINE Real lost(Real x, double factor, Real product) {
  // Half of the bits of each: their product is exact, whether or not the processor fuses it.
  constexpr int dropped = __is_same(Compute, float) ? 12 : 27;
  const Real upper = Real((Truth(x) >> dropped) << dropped);
  const Real high = Real((Truth(splat(factor)) >> dropped) << dropped);
  const Real low = splat(factor - double(high[0]));
  return ((upper * high - product) + upper * low) + (x - upper) * splat(factor);
}

/// x Φ(x), with Φ(x) = erfc(-x/√2)/2, which keeps its digits where 1 + erf loses them.
///
/// erfc turns a relative error of its argument z into one 2z² times as large, so we correct for the
/// rounding of z: d(log erfc)/dz is -2z, the more exactly the larger z is.
template <class V>
PULLBACK_INLINE V gelu(V x) {
  // -1/√2, and its part beyond a double.
  constexpr double factor = -0.70710678118654752440, beyond = 4.8336466567264567e-17;
  const V z = x * constant<V>(factor);
  const V rest = lost(x, factor, z) + x * constant<V>(beyond);
  const auto matters = logical_and(gt(z, V{}), lt(z, constant<V>(30)));
  const V change = where(matters, (z + z) * rest, V{});
  const V tail = erfc(z);
  return constant<V>(0.5) * x * (tail - tail * change);
}

/// factor * (above / below), given factor / below, which says the same unless it is out of range.
template <class V>
PULLBACK_INLINE V times_quotient(V factor, V above, V below, V quotient) {
  const V size = abs(quotient), product = quotient * above;
  const auto usual = logical_and(gt(size, constant<V>(1e-37)), lt(size, constant<V>(1e38)));
  if (!any(logical_not(usual))) [[likely]]
    return product;
  return where(usual, product, factor * (above / below));
}

/// Φ(x) + x Φ'(x): exponential.h has a faster one of floats.
template <class V>
PULLBACK_INLINE V gelu_slope(V x) {
  const V power = exp(x * x * constant<V>(-0.5)) * constant<V>(0.3989422804014327);
  return constant<V>(0.5) * erfc(x * constant<V>(-0.7071067811865476)) + x * power;
}

// log(eᵃ + eᵇ), exact where one of the two is far larger; inf - inf must not occur.
template <class V>
PULLBACK_INLINE V logaddexp(V a, V b) {
  // Written as the derivative has it, which then shares the exponential.
  const auto both_infinite = logical_and(eq(a, b), eq(abs(a), constant<V>(infinity)));
  const V distance = abs(where(both_infinite, V{}, a - b));
  return maximum(a, b) + log1p_of_fraction(exp_of_minus(distance));
}
template <class V>
PULLBACK_INLINE V logaddexp2(V a, V b) {
  const V distance = where(eq(a, b), V{}, abs(a - b));
  return maximum(a, b) + log1p_of_fraction(exp2(-distance)) * constant<V>(1.44269504088896340736);
}

// 0 where x is 0, whatever the logarithm, unless it is NaN.
template <class V>
PULLBACK_INLINE V xlogy(V x, V y) {
  return where(logical_and(eq(x, V{}), eq(y, y)), V{}, x * log(y));
}
template <class V>
PULLBACK_INLINE V xlog1py(V x, V y) {
  return where(logical_and(eq(x, V{}), eq(y, y)), V{}, x * log1p(y));
}

}  // namespace pullback::formula
