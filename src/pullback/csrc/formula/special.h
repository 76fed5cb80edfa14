/// Special functions that no vector library has; V is Doubles or double.
#pragma once

#include "wide.h"

namespace pullback::formula {

/// From the highest power down; all coefficients times `scale`.
template <class V, int count>
PULLBACK_INLINE V polynomial(V x, const double (&coefficients)[count], double scale = 1) {
  V value = constant<V>(coefficients[0] * scale);
#pragma GCC unroll 16
  for (int k = 1; k < count; ++k) value = value * x + constant<V>(coefficients[k] * scale);
  return value;
}

/// Source:
///   M. Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution",
///   Applied Statistics 37 (1988), 477-484; erfinv(x) is its PPND16((1 + x)/2)/√2.
template <class V>
PULLBACK_INLINE V erfinv_of(V x) {
  static constexpr double near_p[] = {2.5090809287301226727e3, 3.3430575583588128105e4,
                                      6.7265770927008700853e4, 4.5921953931549871457e4,
                                      1.3731693765509461125e4, 1.9715909503065514427e3,
                                      1.3314166789178437745e2, 3.3871328727963666080e0};
  static constexpr double near_q[] = {5.2264952788528545610e3, 2.8729085735721942674e4,
                                      3.9307895800092710610e4, 2.1213794301586595867e4,
                                      5.3941960214247511077e3, 6.8718700749205790830e2,
                                      4.2313330701600911252e1, 1.0};
  static constexpr double far_p[] = {7.74545014278341407640e-4, 2.27238449892691845833e-2,
                                     2.41780725177450611770e-1, 1.27045825245236838258e0,
                                     3.64784832476320460504e0,  5.76949722146069140550e0,
                                     4.63033784615654529590e0,  1.42343711074968357734e0};
  static constexpr double far_q[] = {1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                     1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                     6.89767334985100004550e-1, 1.67638483018380384940e0,
                                     2.05319162663775882187e0,  1.0};
  static constexpr double end_p[] = {2.01033439929228813265e-7, 2.71155556874348757815e-5,
                                     1.24266094738807843860e-3, 2.65321895265761230930e-2,
                                     2.96560571828504891230e-1, 1.78482653991729133580e0,
                                     5.46378491116411436990e0,  6.65790464350110377720e0};
  static constexpr double end_q[] = {2.04426310338993978564e-15, 1.42151175831644588870e-7,
                                     1.84631831751005468180e-5,  7.86869131145613259100e-4,
                                     1.48753612908506148525e-2,  1.36929880922735805310e-1,
                                     5.99832206555887937690e-1,  1.0};
  constexpr double root_half = 0.70710678118654752440;
  const V magnitude = abs(x), one = constant<V>(1);
  const V r = constant<V>(0.180625) - x * x * constant<V>(0.25);
  const V near = x * (polynomial(r, near_p, root_half / 2) / polynomial(r, near_q));
  const V root = sqrt(-log((one - magnitude) * constant<V>(0.5)));
  const V s = root - constant<V>(1.6), t = root - constant<V>(5);
  const V far = polynomial(s, far_p, root_half) / polynomial(s, far_q);
  const V end = polynomial(t, end_p, root_half) / polynomial(t, end_q);
  const V tail = copysign(where(le(root, constant<V>(5)), far, end), x);
  const V at_end = copysign(constant<V>(__builtin_inf()), x);
  const V value = where(le(magnitude, constant<V>(0.85)), near, tail);
  return where(eq(magnitude, one), at_end, value);
}

/// As PyTorch's: -inf at 0, inf at -0, NaN at the negative integers.
template <class V>
PULLBACK_INLINE V digamma_of(V x) {
  constexpr double pi = 3.14159265358979323846, enough = 10;
  // ψ(z) = log z - 1/2z - Σ B₂ₖ/(2k z²ᵏ), from the last term.
  static constexpr double series[] = {1.0 / 12,  -691.0 / 32760, 1.0 / 132, -1.0 / 240,
                                      1.0 / 252, -1.0 / 120,     1.0 / 12};
  const V one = constant<V>(1), zero{};
  const auto reflected = lt(x, zero);
  V z = where(reflected, one - x, x), sum = zero, product = one;
  // ψ(z) = ψ(z + 1) - 1/z until the series is exact; the sum of the 1/z over one denominator.
  for (int k = 0; k < int(enough); ++k) {
    const auto small = lt(z, constant<V>(enough));
    sum = where(small, sum * z + product, sum);
    product = where(small, product * z, product);
    z = where(small, z + one, z);
  }
  const V square = one / (z * z);
  const V tail = square * polynomial(square, series) + constant<V>(0.5) / z + sum / product;
  V value = log(z) - tail;
  if (any(reflected)) {
    const V turn = x - round(x);
    const V cotangent = constant<V>(pi) / tan(constant<V>(pi) * turn);
    const V at_pole = constant<V>(__builtin_nan(""));
    value = where(reflected, where(eq(turn, zero), at_pole, value - cotangent), value);
  }
  return where(eq(x, zero), copysign(constant<V>(__builtin_inf()), -x), value);
}

PULLBACK_INLINE double erfinv(double x) { return erfinv_of(x); }
PULLBACK_INLINE Real erfinv(Real x) {
  return in_doubles([](Doubles some) { return erfinv_of(some); }, x);
}
PULLBACK_INLINE double digamma(double x) { return digamma_of(x); }
PULLBACK_INLINE Real digamma(Real x) {
  return in_doubles([](Doubles some) { return digamma_of(some); }, x);
}

}  // namespace pullback::formula
