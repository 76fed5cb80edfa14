/// The derivatives of digamma.
#pragma once

#include "special.h"

namespace pullback::formula {

/// x⁻ⁿ, n > 0.
PULLBACK_INLINE Doubles inverse_power(Doubles x, int64_t n) {
  Doubles power = constant<Doubles>(1);
  for (Doubles square = x; n > 0; n >>= 1, square *= square) {
    if (n & 1) power *= square;
  }
  return 1.0 / power;
}

/// Σ (q + k)⁻ˢ over k = 0, 1, ... for q > 0, s > 1: its first terms one by one, the rest by the
/// Euler-Maclaurin formula.
[[gnu::noinline]] inline Doubles hurwitz_zeta(int64_t s, Doubles q) {
  // B₂ⱼ/(2j)!
  static constexpr double bernoulli[] = {
      8.3333333333333333e-2,   -1.3888888888888889e-3,  3.3068783068783069e-5,
      -8.2671957671957672e-7,  2.0876756987868099e-8,   -5.2841901386874932e-10,
      1.3382536530684679e-11,  -3.3896802963225829e-13, 8.5860620562778446e-15,
      -2.1748686985580619e-16, 5.5090028283602295e-18,  -1.3954464685812523e-19};
  const Doubles zero{}, one = constant<Doubles>(1), exact_from = constant<Doubles>(double(8 + s));
  Doubles sum = zero, w = q;
  for (auto small = lt(w, exact_from); any(small); small = lt(w, exact_from)) {
    sum += where(small, inverse_power(w, s), zero);
    w += where(small, one, zero);
  }
  const Doubles last = inverse_power(w, s), inverse = 1.0 / w;
  sum += last * (w / double(s - 1) + 0.5);
  Doubles rising = last * inverse * double(s);
  for (int j = 0; j < 12; ++j) {
    sum += rising * bernoulli[j];
    rising *= inverse * inverse * (double(s + 2 * j + 1) * double(s + 2 * j + 2));
  }
  return where(eq(q, constant<Doubles>(__builtin_inf())), zero, sum);
}

/// The n-th derivative of digamma, (-1)ⁿ⁺¹ n! Σ (x + k)⁻ˢ with s = n + 1.
///
/// For x <= 0 at distance d from the nearest integer, the terms are those of d and above, and those
/// from d - 1 down to x: a finite sum, the difference of two infinite ones.
[[gnu::noinline]] inline Doubles polygamma_of(int64_t n, Doubles x) {
  const int64_t s = n + 1;
  double factorial = 1;
  for (int64_t k = 2; k <= n && k <= 171; ++k) factorial *= double(k);
  const Doubles zero{}, one = constant<Doubles>(1), pole = constant<Doubles>(__builtin_inf());
  const auto reflected = le(x, zero);
  Doubles sum = hurwitz_zeta(s, where(reflected, one, x));
  if (any(reflected)) {
    const Doubles below_zero = where(reflected, -x, zero), d = round(below_zero) - below_zero;
    const Doubles below = hurwitz_zeta(s, one - d) - hurwitz_zeta(s, one + below_zero);
    const Doubles above = inverse_power(d, s) + hurwitz_zeta(s, one + d);
    const Doubles all = s % 2 ? above - below : above + below;
    sum = where(reflected, where(eq(d, zero), pole, all), sum);
  }
  return sum * (n % 2 ? factorial : -factorial);
}

PULLBACK_INLINE double polygamma(int64_t n, double x) {
  return n == 0 ? digamma(x) : polygamma_of(n, constant<Doubles>(x))[0];
}
PULLBACK_INLINE Real polygamma(int64_t n, Real x) {
  if (n == 0) return digamma(x);
  return in_doubles([n](Doubles some) { return polygamma_of(n, some); }, x);
}

}  // namespace pullback::formula
