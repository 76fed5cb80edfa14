/// Inlined because no library is as fast: exponentials of floats, and functions that contain one.
///
/// Only where the processor has fused multiply-add; elsewhere the libraries' functions are used.
#pragma once

#include "library.h"

namespace pullback::formula {

#if defined(PULLBACK_INLINE_EXP)

// The compiler would make the same instruction from the loop, but take longer.
#if defined(__clang__) || !defined(__x86_64__) || PULLBACK_REGISTER_BYTES == 16
PULLBACK_INLINE Real fma(Real x, Real y, Real z) {
  for (int k = 0; k < lanes; ++k) x[k] = __builtin_fmaf(x[k], y[k], z[k]);
  return x;
}
#elif PULLBACK_REGISTER_BYTES == 64
PULLBACK_INLINE Real fma(Real x, Real y, Real z) {
  return __builtin_ia32_vfmaddps512_mask(x, y, z, -1, 4);
}
#else
PULLBACK_INLINE Real fma(Real x, Real y, Real z) { return __builtin_ia32_vfmaddps256(x, y, z); }
#endif

/// By Horner's rule, the coefficient of the highest power first.
template <class... Coefficient>
PULLBACK_INLINE Real horner(Real x, double first, Coefficient... others) {
  Real value = splat(first);
  ((value = fma(value, x, splat(others))), ...);
  return value;
}

/// 2ⁿ as a factor. The integer n is also in the last bits of `sum`.
struct Scale {
  Real n;
  Truth sum;

  PULLBACK_INLINE Real times(Real x) const {
#if PULLBACK_REGISTER_BYTES == 64 && !defined(__clang__)
    return __builtin_ia32_scalefps512_mask(x, n, x, -1, 4);
#else
    // In two steps, since 2ⁿ itself may be too large, or denormal.
    const Truth one = Truth(splat(1.0)), exponent = sum << 23, half = (exponent >> 24) << 23;
    return x * Real(one + (exponent - half)) * Real(one + half);
#endif
  }
};

/// The bits that remain in the fraction of x + this are those of the nearest integer.
constexpr double shift_to_fraction = 0x1.8p23;

/// Returns r and sets the scale, for x + rest = n log 2 + r; |x| < 128, and the rest is tiny.
PULLBACK_INLINE Real reduce_by_log2(Real x, Real rest, Scale& scale) {
  const Real shift = splat(shift_to_fraction), sum = fma(x, splat(1.44269504088896340736), shift);
  const Real n = sum - shift;
  scale = {n, Truth(sum)};
  // log 2 in two parts: of the first, 355/512, every multiple is exact.
  const Real upper = fma(n, splat(-0.693359375), x);
  return upper + fma(n, splat(2.12194440054690583e-4), rest);
}

/// (eʳ - 1 - r)/r². Minimax over |r| <= log(2)/2, relative to eʳ: to 2⁻²⁸.
PULLBACK_INLINE Real exp_beyond_first(Real r) {
  return horner(r, 1.3814467059328806e-3, 8.3687804111804626e-3, 4.1668394210893821e-2,
                1.6666520107819590e-1, 4.9999993412501566e-1);
}

/// Returns eʳ, within 0.9 ulp, for x + rest = n log 2 + r; |x| < 128, and the rest is tiny.
PULLBACK_INLINE Real exp_without_scale(Real x, Real rest, Scale& scale) {
  const Real r = reduce_by_log2(x, rest, scale), one = splat(1.0);
  return fma(fma(exp_beyond_first(r), r, one), r, one);
}

/// Rounded once, also where it is denormal.
PULLBACK_INLINE Real exp(Real x) {
  // Beyond these it is 0 or infinite.
  const Real within = at_most(at_least(x, splat(-104.0)), splat(89.0));
  Scale scale;
  const Real power = exp_without_scale(within, splat(-0.0), scale);
  return scale.times(power);
}

#endif

#if defined(PULLBACK_INLINE_EXPM1)

/// eˣ - 1 is 2ⁿ((eʳ - 1) + (1 - 2⁻ⁿ)), where 1 - 2⁻ⁿ is exact as long as eʳ - 1 matters.
PULLBACK_INLINE Real expm1(Real x) {
  // Below -20 it is -1 to the last bit, and at 89 infinite.
  const Real within = at_most(at_least(x, splat(-20.0)), splat(89.0));
  Scale scale;
  const Real r = reduce_by_log2(within, splat(-0.0), scale);
  const Real rise = fma(exp_beyond_first(r) * r, r, r);
  // Of n = 128 the bits are those of -infinity.
  const Truth n = scale.sum - Truth(splat(shift_to_fraction));
  const Real inverse = at_least(Real((127 - n) << 23), Real{});
  // A small x is the value itself, with its sign.
  return where(lt(abs(x), splat(1e-8)), x, scale.times(rise + (splat(1.0) - inverse)));
}

#endif

#if defined(PULLBACK_INLINE_ERFC)

/// exp(-square - rest) erfcx(z), which is erfc(z) where z² = square + rest; 0 <= z < 10.6.
PULLBACK_INLINE Real erfc_of(Real z, Real square, Real rest) {
  Scale scale;
  const Real power = exp_without_scale(-square, -rest, scale);
  // 1/erfcx(z) = √π z + above / below, minimax for z <= 10.1, relative: to 2⁻²⁷. What rounding
  // does to a quotient of polynomials matters little where it is the smaller term.
  const Real above = horner(z, 5.2000355935888365e-5, 4.7592394053936005e-2, 3.4426748752593994e-1,
                            9.8739683628082275e-1, 1.6613554954528809);
  const Real below = horner(z, 5.4481413215398788e-2, 3.8079059123992920e-1, 1.2154076099395752,
                            2.0573976039886475, 1.6613554954528809);
  return scale.times(power / fma(z, splat(1.77243253), above / below));
}

PULLBACK_INLINE Real erfc(Real x) {
  const Real z = at_most(abs(x), splat(10.5)), square = z * z;
  const Real tail = erfc_of(z, square, fma(z, z, -square));
  return where(lt(x, Real{}), splat(2.0) - tail, tail);
}

/// x Φ(x): x - x/2 erfc(x/√2) above 0, and x/2 erfc(-x/√2) below.
PULLBACK_INLINE Real gelu(Real x) {
  const Real half = splat(0.5), factor = abs(at_most(x, splat(14.5)));
  const Real a = at_most(factor, splat(14.5)), square = a * a, rest = fma(a, a, -square);
  const Real tail = erfc_of(a * splat(0.70710678118654752440), half * square, half * rest);
  // One rounding. -0.0 and not 0: gelu of a very negative number is -0.
  return fma(-half * factor, tail, at_least(x, splat(-0.0)));
}

#endif

/// log(1 + x) for x from 0 to 1, where it need not be taken apart into exponent and mantissa.
template <class V>
PULLBACK_INLINE V log1p_of_fraction(V x) {
#if defined(PULLBACK_INLINE_EXP) && PULLBACK_ULP >= 4
  if constexpr (__is_same(V, Real)) {
    // Minimax, relative to log(1 + x): to 2⁻²⁷.
    const Real rest = horner(x, -3.31847160817e-3, 2.0204579658e-2, -5.76644320097e-2,
                             1.06805539992e-1, -1.5355395218e-1, 1.96954000879e-1,
                             -2.49585873176e-1, 3.33305113085e-1, -4.99999327631e-1);
    return fma(x * x, rest, x);
  }
#endif
  return log1p(x);
}

}  // namespace pullback::formula
