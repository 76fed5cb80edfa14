/// CUDA's mathematics: the functions that C's library lacks, and its missing overloads for float.
///
/// Not tuned to a GPU's last bits: each function is at least as accurate as CUDA documents.
#pragma once

#include <math.h>

#include <cmath>

#include "math/minmax.h"
#include "math/special.h"

inline float rsqrtf(float x) { return 1.0F / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rcbrtf(float x) { return static_cast<float>(1.0 / cbrt(static_cast<double>(x))); }
inline double rcbrt(double x) { return 1.0 / cbrt(x); }
inline float fdividef(float x, float y) { return x / y; }
inline double fdivide(double x, double y) { return x / y; }

inline float rhypotf(float x, float y) { return 1.0F / hypotf(x, y); }
inline double rhypot(double x, double y) { return 1.0 / hypot(x, y); }
inline double norm3d(double x, double y, double z) { return std::hypot(x, y, z); }
inline double norm4d(double x, double y, double z, double w) { return hypot(norm3d(x, y, z), w); }
inline double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
inline double rnorm4d(double x, double y, double z, double w) { return 1.0 / norm4d(x, y, z, w); }
inline double norm(int dimension, const double* p) {
  double result = 0.0;
  for (int i = 0; i < dimension; ++i) result = hypot(result, p[i]);
  return result;
}
inline double rnorm(int dimension, const double* p) { return 1.0 / norm(dimension, p); }

// No sum of squares of floats overflows, or loses a bit that counts, as a double.
inline float norm3df(float x, float y, float z) {
  return static_cast<float>(sqrt(double{x} * x + double{y} * y + double{z} * z));
}
inline float norm4df(float x, float y, float z, float w) {
  return static_cast<float>(sqrt(double{x} * x + double{y} * y + double{z} * z + double{w} * w));
}
inline float rnorm3df(float x, float y, float z) { return 1.0F / norm3df(x, y, z); }
inline float rnorm4df(float x, float y, float z, float w) { return 1.0F / norm4df(x, y, z, w); }
inline float normf(int dimension, const float* p) {
  double squares = 0.0;
  for (int i = 0; i < dimension; ++i) squares += double{p[i]} * p[i];
  return static_cast<float>(sqrt(squares));
}
inline float rnormf(int dimension, const float* p) { return 1.0F / normf(dimension, p); }

// Functions that runtime/math_special.cpp has for double: for float their results are rounded.
#define CUDA_ON_CPU_SPECIAL(name)                                                             \
  inline double name(double x) { return ::cuda_on_cpu::special::name(x); }                    \
  inline float name##f(float x) { return static_cast<float>(::cuda_on_cpu::special::name(x)); } \
  inline float name(float x) { return name##f(x); }
CUDA_ON_CPU_SPECIAL(sinpi)
CUDA_ON_CPU_SPECIAL(cospi)
CUDA_ON_CPU_SPECIAL(erfcx)
CUDA_ON_CPU_SPECIAL(erfinv)
CUDA_ON_CPU_SPECIAL(erfcinv)
CUDA_ON_CPU_SPECIAL(normcdf)
CUDA_ON_CPU_SPECIAL(normcdfinv)
CUDA_ON_CPU_SPECIAL(cyl_bessel_i0)
CUDA_ON_CPU_SPECIAL(cyl_bessel_i1)
#undef CUDA_ON_CPU_SPECIAL
inline void sincospi(double x, double* sine, double* cosine) {
  *sine = sinpi(x), *cosine = cospi(x);
}
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = sinpif(x), *cosine = cospif(x);
}

// C's library has these in both precisions, but under two names.
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrt(float x) { return rcbrtf(x); }
inline float rhypot(float x, float y) { return rhypotf(x, y); }
inline float exp10(float x) { return exp10f(x); }
inline float j0(float x) { return j0f(x); }
inline float j1(float x) { return j1f(x); }
inline float jn(int n, float x) { return jnf(n, x); }
inline float y0(float x) { return y0f(x); }
inline float y1(float x) { return y1f(x); }
inline float yn(int n, float x) { return ynf(n, x); }
inline void sincos(float x, float* sine, float* cosine) { sincosf(x, sine, cosine); }
inline void sincospi(float x, float* sine, float* cosine) { sincospif(x, sine, cosine); }
inline double copysign(double x, float y) { return copysign(x, static_cast<double>(y)); }
inline double copysign(float x, double y) { return copysign(static_cast<double>(x), y); }
