/// CUDA's complex numbers for C: pairs of floats and of doubles.
#pragma once

#include "cuda_runtime.h"

typedef float2 cuFloatComplex;
typedef cuFloatComplex cuComplex;
typedef double2 cuDoubleComplex;

#define CUDA_ON_CPU_COMPLEX(T, Complex, suffix, hypotenuse)                              \
  inline T cuCreal##suffix(Complex z) { return z.x; }                                    \
  inline T cuCimag##suffix(Complex z) { return z.y; }                                    \
  inline Complex cuConj##suffix(Complex z) { return {z.x, -z.y}; }                       \
  inline T cuCabs##suffix(Complex z) { return hypotenuse(z.x, z.y); }                    \
  inline Complex cuCadd##suffix(Complex a, Complex b) { return {a.x + b.x, a.y + b.y}; } \
  inline Complex cuCsub##suffix(Complex a, Complex b) { return {a.x - b.x, a.y - b.y}; } \
  inline Complex cuCmul##suffix(Complex a, Complex b) {                                  \
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};                               \
  }                                                                                      \
  inline Complex cuCfma##suffix(Complex a, Complex b, Complex c) {                       \
    return {a.x * b.x - a.y * b.y + c.x, a.x * b.y + a.y * b.x + c.y};                   \
  }                                                                                      \
  /* Scaled, so that no square overflows. */                                             \
  inline Complex cuCdiv##suffix(Complex a, Complex b) {                                  \
    const T scale = 1 / (fabs(b.x) + fabs(b.y));                                         \
    const T c = b.x * scale, d = b.y * scale, size = c * c + d * d, x = a.x * scale,     \
            y = a.y * scale;                                                             \
    return {(x * c + y * d) / size, (y * c - x * d) / size};                             \
  }
CUDA_ON_CPU_COMPLEX(float, cuFloatComplex, f, hypotf)
CUDA_ON_CPU_COMPLEX(double, cuDoubleComplex, , hypot)
#undef CUDA_ON_CPU_COMPLEX
inline cuFloatComplex make_cuFloatComplex(float x, float y) { return {x, y}; }
inline cuComplex make_cuComplex(float x, float y) { return {x, y}; }
inline cuDoubleComplex make_cuDoubleComplex(double x, double y) { return {x, y}; }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex z) {
  return {static_cast<float>(z.x), static_cast<float>(z.y)};
}
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex z) { return {z.x, z.y}; }
