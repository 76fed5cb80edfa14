/// Arithmetic of the inlined functions: a product and a sum rounded once, and polynomials of these.
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

PULLBACK_INLINE Real between(Real x, double least, double most) {
  return at_most(at_least(x, splat(least)), splat(most));
}

#endif

}  // namespace pullback::formula
