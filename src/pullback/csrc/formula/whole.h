/// Integers and division: here everything is defined that C++ leaves undefined.
///
/// Sums and products wrap around, as PyTorch's do. Dividing by zero gives 0, and on the CPU sets a
/// flag: the runtime raises after the loop, as PyTorch does.
#pragma once

#include "functions.h"

namespace pullback::formula {

using Unsigned [[gnu::vector_size(register_bytes)]] = uint64_t;

PULLBACK_INLINE Whole wrapped_product(Whole a, Whole b) {
  return by_register([](auto x, auto y) { return decltype(x)(Unsigned(x) * Unsigned(y)); }, a, b);
}
PULLBACK_INLINE int64_t wrapped_product(int64_t a, int64_t b) {
  return int64_t(uint64_t(a) * uint64_t(b));
}
PULLBACK_INLINE Whole negative(Whole x) {
  return by_register([](auto own) { return decltype(own)(-Unsigned(own)); }, x);
}
PULLBACK_INLINE int64_t negative(int64_t x) { return int64_t(-uint64_t(x)); }

PULLBACK_INLINE Whole abs(Whole x) { return where(lt(x, Whole{}), negative(x), x); }
PULLBACK_INLINE int64_t abs(int64_t x) { return x < 0 ? negative(x) : x; }
PULLBACK_INLINE Whole sign(Whole x) { return whole(gt(x, Whole{})) - whole(lt(x, Whole{})); }
PULLBACK_INLINE int64_t sign(int64_t x) { return (x > 0) - (x < 0); }

PULLBACK_INLINE Whole one_like(Whole) { return splat(int64_t{1}); }
PULLBACK_INLINE int64_t one_like(int64_t) { return 1; }

template <class W>
PULLBACK_INLINE void note_division(W by, bool* divided) {
  if (any(eq(by, W{}))) __atomic_store_n(divided, true, __ATOMIC_RELAXED);
}

/// a / b towards zero. Dividing by 0, or INT64_MIN by -1, would trap and end the process.
template <class W>
PULLBACK_INLINE W truncated_quotient(W a, W b) {
  const W zero{}, one = one_like(b);
  const auto by_zero = eq(b, zero), by_minus_one = eq(b, -one);
  const W quotient = a / where(logical_or(by_zero, by_minus_one), one, b);
  return where(by_zero, zero, where(by_minus_one, negative(a), quotient));
}
template <class W>
PULLBACK_INLINE W truncated_remainder(W a, W b) {
  return where(eq(b, W{}), W{}, a - wrapped_product(truncated_quotient(a, b), b));
}

PULLBACK_INLINE Whole fmod(Whole a, Whole b) { return truncated_remainder(a, b); }
PULLBACK_INLINE int64_t fmod(int64_t a, int64_t b) { return truncated_remainder(a, b); }

/// Exact. SLEEF's is exact only while the quotient is not too large; beyond that, lane by lane.
PULLBACK_INLINE Real fmod(Real a, Real b) {
#if !defined(PULLBACK_LANE_BY_LANE)
  const Truth easy = lt(abs(a), abs(b) * splat(0x1p20));
  if (!any(logical_not(easy))) return PULLBACK_SLEEF(fmod, )(a, b);
#endif
  return each_lane([](double x, double y) { return __builtin_fmod(x, y); }, a, b);
}
PULLBACK_INLINE double fmod(double a, double b) { return __builtin_fmod(a, b); }

/// Has the sign of the divisor, as in Python.
template <class V>
PULLBACK_INLINE V remainder(V a, V b) {
  const V rest = fmod(a, b);
  const auto other_side = logical_xor(lt(rest, V{}), lt(b, V{}));
  return where(logical_and(ne(rest, V{}), other_side), rest + b, rest);
}

template <class W>
PULLBACK_INLINE W floor_quotient(W a, W b) {
  const W quotient = truncated_quotient(a, b);
  const W rest = a - wrapped_product(quotient, b);
  const auto below = logical_and(ne(rest, W{}), logical_xor(lt(rest, W{}), lt(b, W{})));
  return where(logical_and(below, ne(b, W{})), quotient - one_like(b), quotient);
}
PULLBACK_INLINE Whole floor_divide(Whole a, Whole b) { return floor_quotient(a, b); }
PULLBACK_INLINE int64_t floor_divide(int64_t a, int64_t b) { return floor_quotient(a, b); }

/// PyTorch's, which is Python's: the floor of the exact quotient, not of the rounded one.
template <class V>
PULLBACK_INLINE V floor_divide(V a, V b) {
  const V one = constant<V>(1), rest = fmod(a, b), ratio = a / b;
  const auto below = logical_and(ne(rest, V{}), logical_xor(lt(rest, V{}), lt(b, V{})));
  const V exact = (a - rest) / b, quotient = where(below, exact - one, exact);
  const V down = floor(quotient);
  const V nearest = where(gt(quotient - down, constant<V>(0.5)), down + one, down);
  const V signed_zero = copysign(V{}, ratio);
  return where(eq(b, V{}), ratio, where(eq(quotient, V{}), signed_zero, nearest));
}

/// xⁿ by squaring, for an exponent that is in the formula.
template <int64_t n, class V>
PULLBACK_INLINE V powi(V x) {
  if constexpr (__is_same(V, Whole) || __is_same(V, int64_t)) {
    static_assert(n >= 0, "an integer has no negative powers");
    if constexpr (n == 0) {
      return one_like(x);
    } else if constexpr (n == 1) {
      return x;
    } else {
      const V half = powi<n / 2>(x), square = wrapped_product(half, half);
      return n % 2 ? wrapped_product(square, x) : square;
    }
  } else if constexpr (n < 0) {
    return constant<V>(1) / powi<-n>(x);
  } else if constexpr (n == 0) {
    return constant<V>(1);
  } else if constexpr (n == 1) {
    return x;
  } else {
    const V half = powi<n / 2>(x), square = half * half;
    if constexpr (n % 2) {
      return square * x;
    } else {
      return square;
    }
  }
}

/// Wraps around. With a negative exponent, 1 and -1 give 1 or -1, and any other base gives 0.
template <class W>
PULLBACK_INLINE W whole_power(W base, W exponent) {
  const W zero{}, one = one_like(base);
  W power = one, square = base, left = exponent;
  const auto odd = ne(exponent & one, zero), negative_exponent = lt(exponent, zero);
  while (any(gt(left, zero))) {
    power = where(ne(left & one, zero), wrapped_product(power, square), power);
    square = wrapped_product(square, square);
    left = left >> 1;
  }
  const W unit = where(odd, base, one);
  const W inverse = where(eq(abs(base), one), unit, zero);
  return where(negative_exponent, inverse, power);
}
PULLBACK_INLINE Whole pow(Whole base, Whole exponent) { return whole_power(base, exponent); }
PULLBACK_INLINE int64_t pow(int64_t base, int64_t exponent) { return whole_power(base, exponent); }

}  // namespace pullback::formula
