/// Special functions that neither CUDA nor g++ has.
#pragma once

#include "functions.cuh"

namespace pullback::formula {

/// By Horner's rule, the coefficient of the highest power first.
template <class V, class... Coefficient>
PULLBACK_INLINE V polynomial(V x, double first, Coefficient... others) {
  V value = V(first);
  ((value = value * x + V(others)), ...);
  return value;
}

#if defined(__CUDA_ARCH__)
PULLBACK_INLINE float erfinv(float x) { return ::erfinvf(x); }
PULLBACK_INLINE double erfinv(double x) { return ::erfinv(x); }
#else
/// g++ has none; on the host it is needed for scalars only.
///
/// Source:
///   M. Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution",
///   Applied Statistics 37 (1988), 477-484; erfinv(x) is its PPND16((1 + x)/2)/√2.
inline double erfinv(double x) {
  const double magnitude = abs(x);
  if (magnitude == 1) return copysign(infinity<double>, x);
  double value;
  if (magnitude <= 0.85) {
    const double r = 0.180625 - x * x * 0.25;
    value = 0.5 * x *
            polynomial(r, 2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
                       4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
                       1.3314166789178437745e2, 3.3871328727963666080e0) /
            polynomial(r, 5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
                       2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
                       4.2313330701600911252e1, 1.0);
  } else {
    const double root = sqrt(-log((1 - magnitude) * 0.5)), s = root - 1.6, t = root - 5;
    const double tail =
        root <= 5 ? polynomial(s, 7.74545014278341407640e-4, 2.27238449892691845833e-2,
                               2.41780725177450611770e-1, 1.27045825245236838258e0,
                               3.64784832476320460504e0, 5.76949722146069140550e0,
                               4.63033784615654529590e0, 1.42343711074968357734e0) /
                        polynomial(s, 1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                   1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                   6.89767334985100004550e-1, 1.67638483018380384940e0,
                                   2.05319162663775882187e0, 1.0)
                  : polynomial(t, 2.01033439929228813265e-7, 2.71155556874348757815e-5,
                               1.24266094738807843860e-3, 2.65321895265761230930e-2,
                               2.96560571828504891230e-1, 1.78482653991729133580e0,
                               5.46378491116411436990e0, 6.65790464350110377720e0) /
                        polynomial(t, 2.04426310338993978564e-15, 1.42151175831644588870e-7,
                                   1.84631831751005468180e-5, 7.86869131145613259100e-4,
                                   1.48753612908506148525e-2, 1.36929880922735805310e-1,
                                   5.99832206555887937690e-1, 1.0);
    value = copysign(tail, x);
  }
  return value * 0.70710678118654752440;
}
inline float erfinv(float x) { return float(erfinv(double(x))); }
#endif

/// As PyTorch's: -inf at 0, inf at -0, NaN at the negative integers.
template <class V>
PULLBACK_INLINE V digamma(V x) {
  constexpr V pi = V(3.14159265358979323846);
  if (x == V(0)) return copysign(infinity<V>, -x);
  V z = x, reflection = V(0);
  if (x < V(0)) {
    const V turn = x - round(x);
    if (turn == V(0)) return V(__builtin_nan(""));
    reflection = pi / tan(pi * turn);
    z = V(1) - x;
  }
  // ψ(z) = ψ(z + 1) - 1/z until the series is exact; the sum of the 1/z over one denominator.
  V sum = V(0), product = V(1);
  for (; z < V(10); z += V(1)) {
    sum = sum * z + product;
    product *= z;
  }
  // ψ(z) = log z - 1/2z - Σ B₂ₖ/(2k z²ᵏ)
  const V square = V(1) / (z * z);
  const V series = polynomial(square, 1.0 / 12, -691.0 / 32760, 1.0 / 132, -1.0 / 240, 1.0 / 252,
                              -1.0 / 120, 1.0 / 12);
  return log(z) - (square * series + V(0.5) / z + sum / product) - reflection;
}

/// The derivatives in Euler's and Maclaurin's formula, from the first on, which is s w⁻ˢ⁻¹; the
/// coefficients are B₂ⱼ/(2j)!.
template <class V, class... Coefficient>
PULLBACK_INLINE V maclaurin(V s, V w, V first, Coefficient... coefficients) {
  V sum = V(0), derivative = first, k = s;
  const auto add = [&](V coefficient) {
    sum += derivative * coefficient;
    derivative *= (k + V(1)) * (k + V(2)) / (w * w);
    k += V(2);
  };
  (add(V(coefficients)), ...);
  return sum;
}

/// ζ(s, q) = Σ (q + k)⁻ˢ for q > 0 and an integer s > 1.
template <class V>
PULLBACK_INLINE V hurwitz_zeta(V s, V q) {
  V w = q, sum = V(0);
  for (; w <= V(9) + s; w += V(1)) {
    const V term = pow(w, -s);
    sum += term;
    if (term < V(0x1p-60) * sum) return sum;
  }
  const V whole = pow(w, V(1) - s), last = whole / w;
  if (last == V(0)) return sum + whole / (s - V(1));  // the rest is 0, or 0 times infinity
  return sum + whole / (s - V(1)) + last / V(2) +
         maclaurin(s, w, last * s / w, 8.3333333333333333e-2, -1.3888888888888889e-3,
                   3.3068783068783069e-5, -8.2671957671957672e-7, 2.0876756987868099e-8,
                   -5.2841901386874932e-10, 1.3382536530684679e-11, -3.3896802963225829e-13,
                   8.5860620562778446e-15, -2.1748686985580619e-16, 5.5090028283602295e-18,
                   -1.3954464685812523e-19);
}

/// The n-th derivative of digamma, (-1)ⁿ⁺¹ n! ζ(n + 1, x).
///
/// Below 0 the series starts with the terms between x and 0: those of ζ(n + 1, q) as far as 1 - x,
/// where q is how far x lies below the next integer.
template <class V>
PULLBACK_INLINE V polygamma(int64_t n, V x) {
  if (n == 0) return digamma(x);
  V factor = V(n % 2 ? 1 : -1);
  for (int64_t k = 2; k <= n && abs(factor) < infinity<V>; ++k) factor *= V(k);
  const V s = V(n) + V(1);
  if (x > V(0)) return factor * hurwitz_zeta(s, x);
  const V below = floor(x), r = x - below;
  if (r == V(0) || x == -infinity<V>) return factor * infinity<V>;
  // Not 1 - r: just below 0 that would lose the digits of x.
  const V between = hurwitz_zeta(s, (below + V(1)) - x) - hurwitz_zeta(s, V(1) - x);
  return factor * (hurwitz_zeta(s, r) + (n % 2 ? between : -between));
}

}  // namespace pullback::formula
