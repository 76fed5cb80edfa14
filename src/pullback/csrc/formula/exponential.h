/// Inlined because no library is as fast: exponentials of floats, and functions that contain one.
///
/// Only where the processor has fused multiply-add; elsewhere the libraries' functions are used.
#pragma once

#include "fused.h"

namespace pullback::formula {

#if defined(PULLBACK_INLINE_EXP)

/// x = n log 2 + r, and the bits of 2ⁿ⁺ᵐ for the m that is asked for.
struct Reduced {
  Real n, r;
  Truth power;

  PULLBACK_INLINE Reduced(Real x, int m) {
    // The bits that remain in the fraction of a number plus `shift` are those of the nearest
    // integer, plus 127 + m.
    const Real shift = splat(0x1.8p23 + 127 + m),
               sum = fma(x, splat(1.44269504088896340736), shift);
    n = sum - shift;
    // log 2 in two parts: of the first, 355/512, every multiple is exact.
    r = fma(n, splat(2.12194440054690583e-4), fma(n, splat(-0.693359375), x));
    power = Truth(sum) << 23;
  }
};

/// (eʳ - 1 - r)/r². Minimax over |r| <= log(2)/2, relative to eʳ: to 2⁻²⁸.
PULLBACK_INLINE Real exp_beyond_first(Real r) {
  return horner(r, 1.3814467059328806e-3, 8.3687804111804626e-3, 4.1668394210893821e-2,
                1.6666520107819590e-1, 4.9999993412501566e-1);
}

PULLBACK_INLINE Real exp_of_reduced(Real r) {
  const Real one = splat(1.0);
  return fma(fma(exp_beyond_first(r), r, one), r, one);
}

/// x 2ⁿ, rounded once, for n up to 63, and m = 64.
PULLBACK_INLINE Real scale_down(Real x, Reduced by) {
#if PULLBACK_REGISTER_BYTES == 64 && !defined(__clang__)
  return __builtin_ia32_scalefps512_mask(x, by.n, x, -1, 4);
#else
  return x * Real(by.power) * splat(0x1p-64);
#endif
}

/// Within 0.9 ulp; rounded once, also where it is denormal.
PULLBACK_INLINE Real exp(Real x) {
  // Beyond these it is 0 or infinite.
  const Reduced reduced(between(x, -104, 89), 127);
  const Real power = exp_of_reduced(reduced.r);
#if PULLBACK_REGISTER_BYTES == 64 && !defined(__clang__)
  return __builtin_ia32_scalefps512_mask(power, reduced.n, power, -1, 4);
#else
  // In two steps, since 2ⁿ itself may be too large, or denormal.
  const Real last = where(Truth(Truth(reduced.n) < 0), splat(0x1p-64), splat(0x1p64));
  return power * Real(reduced.power - Truth(last)) * last;
#endif
}

/// exp(-x) for x >= 0, with less to scale.
PULLBACK_INLINE Real exp_of_minus(Real x) {
  const Reduced reduced(-at_most(x, splat(104.0)), 64);
  return scale_down(exp_of_reduced(reduced.r), reduced);
}

/// 1 / (1 + e⁻ˣ), both parts of it times 2⁻²⁴: so a very negative x has its digits, too.
PULLBACK_INLINE Real sigmoid_alone(Real x) {
  const Reduced reduced(-between(x, -104, 70), -24);
  const Real one = splat(0x1p-24);
  return one / fma(exp_of_reduced(reduced.r), Real(reduced.power), one);
}

#else
PULLBACK_INLINE Real exp_of_minus(Real x) { return exp(-x); }
#endif
PULLBACK_INLINE double exp_of_minus(double x) { return exp(-x); }

#if defined(PULLBACK_INLINE_4ULP)

/// eˣ - 1 is 2(2ⁿ⁻¹(eʳ - 1) + (2ⁿ⁻¹ - 1/2)), where 2ⁿ⁻¹ is a float even if n is 128.
PULLBACK_INLINE Real expm1(Real x) {
  // Below -20 it is -1 to the last bit, and at 89 infinite.
  const Reduced reduced(between(x, -20, 89), -1);
  const Real r = reduced.r, power = Real(reduced.power);
  const Real half = fma(fma(exp_beyond_first(r) * r, r, r), power, power - splat(0.5));
  // A small x is the value itself, with its sign.
  return where(lt(abs(x), splat(1e-8)), x, half + half);
}

/// The same of the parts that `exp(x)` has, too.
PULLBACK_INLINE Real expm1_beside_exp(Real x) {
  const Reduced reduced(between(x, -104, 89), 127);
  const Real r = reduced.r, power = Real(reduced.power - (128 << 23));
  const Real half = fma(fma(exp_beyond_first(r) * r, r, r), power, power - splat(0.5));
  const Real value = where(lt(x, splat(-20.0)), splat(-1.0), half + half);
  return where(lt(abs(x), splat(1e-8)), x, value);
}

/// n / (n + 2) with n = e²ˣ - 1. From 10 on it is 1 to the last bit.
PULLBACK_INLINE Real tanh(Real x) {
  const Real within = between(x, -10, 10);
  const Reduced reduced(within + within, 0);
  const Real r = reduced.r, power = Real(reduced.power);
  const Real n = fma(fma(exp_beyond_first(r) * r, r, r), power, power - splat(1.0));
  return Real(Truth(n / (n + splat(2.0))) | (Truth(x) & sign_bit));
}

/// exp(-z²) and erfc(z), where z² = square + rest and 0 <= z < 10.6.
struct Tail {
  Real power, area;

  PULLBACK_INLINE Tail(Real z, Real square, Real rest) {
    const Reduced reduced(-square, 64);
    power = scale_down(exp_of_reduced(reduced.r - rest), reduced);
    // 1/erfcx(z) = √π z + above / below, minimax for z <= 10.1, relative: to 2⁻²⁷. What rounding
    // does to a quotient of polynomials matters little where it is the smaller term.
    const Real above = horner(z, 5.2000355935888365e-5, 4.7592393054936005e-2,
                              3.4426748752593994e-1, 9.8739683628082275e-1, 1.6613554954528809);
    const Real below = horner(z, 5.4481413215398788e-2, 3.8079059123992920e-1, 1.2154076099395752,
                              2.0573976039886475, 1.6613554954528809);
    area = power / fma(z, splat(1.77243253), above / below);
  }
};

PULLBACK_INLINE Real erfc(Real x) {
  const Real z = at_most(abs(x), splat(10.5)), square = z * z;
  const Real area = Tail(z, square, fma(z, z, -square)).area;
  return where(lt(x, Real{}), splat(2.0) - area, area);
}

/// exp(-x²/2) and erfc(|x|/√2). From 14.5 on both are 0.
PULLBACK_INLINE Tail normal_tail(Real x) {
  const Real a = at_most(abs(x), splat(14.5)), square = a * a, half = splat(0.5);
  const Real rest = fma(a, a, -square);
  return Tail(a * splat(0.70710678118654752440), half * square, half * rest);
}

/// x Φ(x): x - x/2 erfc(x/√2) above 0, and x/2 erfc(-x/√2) below.
PULLBACK_INLINE Real gelu(Real x) {
  const Real factor = abs(at_most(x, splat(14.5)));
  // One rounding. -0.0 and not 0: gelu of a very negative number is -0.
  return fma(splat(-0.5) * factor, normal_tail(x).area, at_least(x, splat(-0.0)));
}

/// Φ(x) + x Φ'(x), which is 1 less what it is of -x.
PULLBACK_INLINE Real gelu_slope(Real x) {
  const Real a = at_most(abs(x), splat(14.5));
  const Tail tail = normal_tail(x);
  const Real below = fma(a * splat(-0.39894228040143267794), tail.power, splat(0.5) * tail.area);
  return where(lt(x, Real{}), below, splat(1.0) - below);
}

#endif

#if defined(PULLBACK_INLINE_LOG)

/// For normal x = 2ⁿ(1 + f), with 1 + f from √½ to √2.
PULLBACK_INLINE Real log_of_normal(Real x) {
  const Truth root = Truth(splat(0.70710678118654752440)), above = Truth(x) - root;
  const Real n = __builtin_convertvector(above >> 23, Real);
  const Real f = Real((above & 0x7FFFFF) + root) - splat(1.0), square = f * f;
  // (log(1 + f) - f)/f², minimax, relative to log(1 + f): to 2⁻²⁵. Even and odd powers apart, since
  // one sum of all takes twice as long to arrive.
  const Real even = horner(square, -1.4307522773742676e-1, -1.6570508480072021e-1,
                           -2.5001755356788635e-1, -4.9999991059303284e-1);
  const Real odd = horner(square, 8.7348438799381256e-2, 1.4917974174022675e-1,
                          1.9962072372436523e-1, 3.3333951234817505e-1);
  const Real beyond = fma(odd, f, even);
  // log 2 in two parts, as above.
  const Real small = fma(n, splat(-2.12194440054690583e-4), square * beyond);
  return fma(n, splat(0.693359375), small + f);
}

PULLBACK_INLINE Real log(Real x) {
  const Real value = log_of_normal(x);
  // With this added, the bits of normal numbers are the least of all.
  if (!any(Truth(Truth(x) + 0x7F800000 >= -0x01000000))) [[likely]]
    return value;
  const Truth negative = lt(x, Real{}),
              denormal = logical_and(gt(x, Real{}), lt(x, splat(0x1p-126)));
  Real rare = where(negative, splat(not_a_number), where(eq(x, Real{}), splat(-infinity), x));
  if (any(denormal)) {
    rare = where(denormal, log_of_normal(x * splat(0x1p23)) - splat(15.942385152878742), rare);
  }
  return where(logical_and(ge(x, splat(0x1p-126)), lt(x, splat(infinity))), value, rare);
}

#endif

/// log(1 + x) for x from 0 to 1, where it need not be taken apart into exponent and mantissa.
template <class V>
PULLBACK_INLINE V log1p_of_fraction(V x) {
#if defined(PULLBACK_INLINE_EXP) && PULLBACK_ULP >= 4
  if constexpr (__is_same(V, Real)) {
    // Minimax, relative to log(1 + x): to 2⁻²⁷. Even and odd powers apart, as above.
    const Real square = x * x;
    const Real even = horner(square, -3.31847160817e-3, -5.76644320097e-2, -1.5355395218e-1,
                             -2.49585873176e-1, -4.99999327631e-1);
    const Real odd =
        horner(square, 2.0204579658e-2, 1.06805539992e-1, 1.96954000879e-1, 3.33305113085e-1);
    return fma(square, fma(odd, x, even), x);
  }
#endif
  return log1p(x);
}

}  // namespace pullback::formula
