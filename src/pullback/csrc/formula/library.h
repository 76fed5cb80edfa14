/// The functions that a vector mathematics library has, and which library each comes from.
#pragma once

#include <features.h>

#include "vector.h"

// glibc's libmvec is the faster one, and complete since 2.35. SLEEF is the more accurate one;
// libtorch_cpu exports it, but on x86 not for SSE registers: there we call libm lane by lane.
// On aarch64 the two have different calling conventions, so only SLEEF is used.
#if defined(__x86_64__) && PULLBACK_REGISTER_BYTES == 16
#define PULLBACK_LANE_BY_LANE 1
#elif defined(__x86_64__) && defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 35)
#define PULLBACK_LIBMVEC 1
#endif
#endif

// The column of the table below.
#if !defined(PULLBACK_LIBMVEC)
#define PULLBACK_SOURCE(f4, f1, d4, d1, sleef) sleef
#elif PULLBACK_DOUBLE && PULLBACK_ULP >= 4
#define PULLBACK_SOURCE(f4, f1, d4, d1, sleef) d4
#elif PULLBACK_DOUBLE
#define PULLBACK_SOURCE(f4, f1, d4, d1, sleef) d1
#elif PULLBACK_ULP >= 4
#define PULLBACK_SOURCE(f4, f1, d4, d1, sleef) f4
#else
#define PULLBACK_SOURCE(f4, f1, d4, d1, sleef) f1
#endif

// _ZGVeN16v_tanhf: AVX-512, 16 lanes, one vector argument.
#if PULLBACK_REGISTER_BYTES == 64
#define PULLBACK_ISA _ZGVeN
#elif PULLBACK_REGISTER_BYTES == 32
#define PULLBACK_ISA _ZGVdN
#endif
#if PULLBACK_LANES == 16
#define PULLBACK_COUNT 16
#elif PULLBACK_LANES == 8
#define PULLBACK_COUNT 8
#elif PULLBACK_LANES == 4
#define PULLBACK_COUNT 4
#else
#define PULLBACK_COUNT 2
#endif
#if PULLBACK_DOUBLE
#define PULLBACK_MVEC_SUFFIX
#define PULLBACK_SLEEF_SUFFIX d
#else
#define PULLBACK_MVEC_SUFFIX f
#define PULLBACK_SLEEF_SUFFIX f
#endif
#define PULLBACK_JOIN5_(a, b, c, d, e) a##b##c##d##e
#define PULLBACK_JOIN5(a, b, c, d, e) PULLBACK_JOIN5_(a, b, c, d, e)
#define PULLBACK_MVEC(args, name) \
  PULLBACK_JOIN5(PULLBACK_ISA, PULLBACK_COUNT, args, _##name, PULLBACK_MVEC_SUFFIX)
#define PULLBACK_SLEEF(name, grade) \
  PULLBACK_JOIN5(Sleef_, name, PULLBACK_SLEEF_SUFFIX, PULLBACK_COUNT, grade)
#define PULLBACK_SYMBOL_mvec(args, name) PULLBACK_MVEC(args, name)
#define PULLBACK_SYMBOL_u05(args, name) PULLBACK_SLEEF(name, _u05)
#define PULLBACK_SYMBOL_u10(args, name) PULLBACK_SLEEF(name, _u10)
#define PULLBACK_SYMBOL_u15(args, name) PULLBACK_SLEEF(name, _u15)
#define PULLBACK_SYMBOL_u35(args, name) PULLBACK_SLEEF(name, _u35)
#define PULLBACK_SYMBOL(source, args, name) PULLBACK_JOIN(PULLBACK_SYMBOL_, source)(args, name)

#define PULLBACK_LANES_UNARY(name)                                               \
  PULLBACK_INLINE Real name(Real x) {                                            \
    return each_lane([](double lane) { return __builtin_##name(lane); }, x);     \
  }                                                                              \
  PULLBACK_INLINE double name(double x) { return __builtin_##name(x); }
#define PULLBACK_LANES_BINARY(name)                                                      \
  PULLBACK_INLINE Real name(Real x, Real y) {                                            \
    return each_lane([](double a, double b) { return __builtin_##name(a, b); }, x, y);   \
  }                                                                                      \
  PULLBACK_INLINE double name(double x, double y) { return __builtin_##name(x, y); }
#define PULLBACK_VECTOR_UNARY(name, symbol)                               \
  extern "C" [[gnu::const]] Real symbol(Real) noexcept;                   \
  PULLBACK_INLINE Real name(Real x) { return symbol(x); }                 \
  PULLBACK_INLINE double name(double x) { return __builtin_##name(x); }
#define PULLBACK_VECTOR_BINARY(name, symbol)                                           \
  extern "C" [[gnu::const]] Real symbol(Real, Real) noexcept;                          \
  PULLBACK_INLINE Real name(Real x, Real y) { return symbol(x, y); }                   \
  PULLBACK_INLINE double name(double x, double y) { return __builtin_##name(x, y); }

#if defined(PULLBACK_LANE_BY_LANE)
#define PULLBACK_UNARY(name, ...) PULLBACK_LANES_UNARY(name)
#define PULLBACK_BINARY(name, ...) PULLBACK_LANES_BINARY(name)
#else
#define PULLBACK_UNARY(name, ...) \
  PULLBACK_VECTOR_UNARY(name, PULLBACK_SYMBOL(PULLBACK_SOURCE(__VA_ARGS__), v, name))
#define PULLBACK_BINARY(name, ...) \
  PULLBACK_VECTOR_BINARY(name, PULLBACK_SYMBOL(PULLBACK_SOURCE(__VA_ARGS__), vv, name))
#endif

namespace pullback::formula {

// f: float, d: double; 4 and 1: the ulps promised. mvec: libmvec; the others: SLEEF's grades.
// After each row, ns per element / largest error in ulps: measured with AVX-512 (AMD Zen 4,
// one core), float on 12 million values of all sizes, double on 7 million.
// At 4 ulps we take the fastest that is right everywhere; at 1 SLEEF's, which PyTorch uses too,
// except for asinh and acosh: SLEEF's are infinite from the square root of the largest number on,
// and libmvec's for 8 floats are off by up to 2.6, so that these are libm's, lane by lane.
// a: SLEEF's, and so PyTorch's, overflow too early: from 88.7 (double 709.8), lgamma from 4.03e36
// (2.5e305) on. The errors are those before that; lgamma's below 0 are in ulps of at least 1.
//
// clang-format off
//                      f4    f1    d4    d1    no mvec     f4       f1       d4       d1
PULLBACK_UNARY(exp2,    mvec, mvec, mvec, u10,  u10)  //  0.24/1.0  0.24/1.0  0.55/1.1  0.79/0.9
PULLBACK_UNARY(log2,    mvec, u10,  mvec, u10,  u10)  //  0.21/2.0  0.59/0.7  0.66/1.9  1.38/0.9
PULLBACK_UNARY(log10,   mvec, u10,  mvec, u10,  u10)  //  0.20/3.5  0.57/0.7  0.63/2.0  1.32/0.8
PULLBACK_UNARY(log1p,   mvec, u10,  mvec, u10,  u10)  //  0.40/1.9  0.77/1.0  0.77/1.9  1.95/1.0
PULLBACK_UNARY(tan,     u35,  u10,  mvec, u10,  u10)  //  0.37/3.5  1.00/1.0  0.87/3.4  1.93/1.0
PULLBACK_UNARY(asin,    u35,  u10,  u35,  u10,  u10)  //  0.28/2.4  0.76/0.8  0.87/2.4  1.73/0.9
PULLBACK_UNARY(acos,    mvec, u10,  u35,  u10,  u10)  //  0.37/2.0  0.91/0.7  1.03/1.3  2.10/0.8
PULLBACK_UNARY(sinh,    mvec, u10,  mvec, u10,  u10)  //  0.32/1.9  1.32/1.0  1.31/1.9  2.79/1.0 a
PULLBACK_UNARY(cosh,    mvec, u10,  mvec, u10,  u10)  //  0.30/2.5  1.29/1.0  0.74/2.0  2.69/1.0 a
PULLBACK_UNARY(atanh,   mvec, u10,  mvec, u10,  u10)  //  0.46/1.7  1.28/1.0  1.37/1.4  3.35/1.0
PULLBACK_UNARY(erf,     mvec, u10,  mvec, u10,  u10)  //  0.60/4.0  2.58/1.0  1.30/2.5 20.74/0.7
PULLBACK_UNARY(lgamma,  u10,  u10,  u10,  u10,  u10)  //  4.99/1.0  4.99/1.0 13.11/1.0 13.11/1.0 a
PULLBACK_BINARY(pow,    mvec, mvec, mvec, mvec, u10)  //  1.86/0.7  1.86/0.7  3.61/1.0  3.61/1.0
PULLBACK_BINARY(atan2,  mvec, u10,  mvec, u10,  u10)  //  0.56/3.2  1.37/1.0  1.48/2.5  3.30/1.0
PULLBACK_BINARY(hypot,  mvec, u05,  mvec, u05,  u05)  //  0.20/1.3  1.05/0.8  0.41/1.3  2.26/0.6
#if defined(PULLBACK_LIBMVEC) && (PULLBACK_DOUBLE || PULLBACK_ULP >= 4 || PULLBACK_COUNT == 16)
PULLBACK_UNARY(asinh,   mvec, mvec, mvec, mvec, u10)  //  0.67/1.0  0.67/1.0  1.95/1.5  1.95/1.5
PULLBACK_UNARY(acosh,   mvec, mvec, mvec, mvec, u10)  //  0.75/1.2  0.75/1.2  2.09/1.6  2.09/1.6
#else
PULLBACK_LANES_UNARY(asinh)
PULLBACK_LANES_UNARY(acosh)
#endif
// clang-format on

// exponential.h and trigonometric.h have these of floats, inlined, where there is an instruction for
// x*y + z. With AVX-512 exp takes 0.17/0.9, expm1 0.19/1.5 and erfc 0.46/3.4; with AVX2 on a slow core
// (AMD Zen) log takes 1.5/1.1 where SLEEF's takes 2.4, tanh 1.7/2.5 where libmvec's takes 2.2, exp 1.4
// and expm1 1.5/1.4. Alone sin takes 0.9/2.7, cos 1.1/2.8 and atan 1.3/2.2, and libmvec's 1.0, 1.0 and
// 1.2; but a loop with other functions waits for a call, and keeps nothing in registers over it.
// A logarithm of 512 bits is left to SLEEF, which has the instructions that take a number apart.
#if !PULLBACK_DOUBLE && (defined(__FMA__) || defined(__FP_FAST_FMAF))
#define PULLBACK_INLINE_EXP 1
PULLBACK_INLINE double exp(double x) { return __builtin_exp(x); }
#if PULLBACK_ULP >= 4
#define PULLBACK_INLINE_4ULP 1
PULLBACK_INLINE double erfc(double x) { return __builtin_erfc(x); }
PULLBACK_INLINE double expm1(double x) { return __builtin_expm1(x); }
PULLBACK_INLINE double tanh(double x) { return __builtin_tanh(x); }
PULLBACK_INLINE double sin(double x) { return __builtin_sin(x); }
PULLBACK_INLINE double cos(double x) { return __builtin_cos(x); }
PULLBACK_INLINE double atan(double x) { return __builtin_atan(x); }
#if PULLBACK_REGISTER_BYTES == 32
#define PULLBACK_INLINE_LOG 1
PULLBACK_INLINE double log(double x) { return __builtin_log(x); }
#endif
#endif
#endif
// clang-format off
#if !defined(PULLBACK_INLINE_EXP)
PULLBACK_UNARY(exp,     u10,  u10,  mvec, u10,  u10)  //  0.31/1.0  0.31/1.0  0.70/3.1  0.94/0.9
#endif
#if !defined(PULLBACK_INLINE_4ULP)
PULLBACK_UNARY(expm1,   mvec, u10,  mvec, u10,  u10)  //  0.30/2.4  1.18/1.0  0.80/2.1  2.42/1.0
PULLBACK_UNARY(tanh,    mvec, u10,  u35,  u10,  u10)  //  0.41/1.4  1.48/1.0  1.52/3.0  3.44/1.0
PULLBACK_UNARY(sin,     mvec, u10,  mvec, u10,  u10)  //  0.27/2.1  0.57/0.9  0.74/3.3  1.20/0.8
PULLBACK_UNARY(cos,     mvec, u10,  mvec, u10,  u10)  //  0.29/1.9  0.72/1.0  0.73/3.6  1.44/0.8
PULLBACK_UNARY(atan,    mvec, u10,  mvec, u10,  u10)  //  0.40/2.2  1.06/1.0  1.06/2.6  2.53/0.9
PULLBACK_UNARY(erfc,    mvec, u15,  mvec, u15,  u15)  //  1.01/1.6  3.25/1.4  1.67/1.9  7.79/1.2
#endif
#if !defined(PULLBACK_INLINE_LOG)
PULLBACK_UNARY(log,     u35,  u10,  u35,  u10,  u10)  //  0.22/2.8  0.56/0.7  0.68/2.3  1.23/0.8
#endif
// clang-format on

// Exact only while the quotient is not too large: whole.h does the rest.
#if !defined(PULLBACK_LANE_BY_LANE)
extern "C" [[gnu::const]] Real PULLBACK_SLEEF(fmod, )(Real, Real) noexcept;
#endif

}  // namespace pullback::formula
