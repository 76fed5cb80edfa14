/// CUDA's fast approximations, which here are as exact as the full functions.
#pragma once

#include "rounding.h"

// The C library has declared some of these for its own use: hence `extern "C"` and noexcept.
#define CUDA_ON_CPU_FAST(name, parameters, expression)                               \
  extern "C" [[gnu::always_inline]] inline float name parameters noexcept { return expression; }
CUDA_ON_CPU_FAST(__expf, (float x), expf(x))
CUDA_ON_CPU_FAST(__exp10f, (float x), exp10f(x))
CUDA_ON_CPU_FAST(__logf, (float x), logf(x))
CUDA_ON_CPU_FAST(__log2f, (float x), log2f(x))
CUDA_ON_CPU_FAST(__log10f, (float x), log10f(x))
CUDA_ON_CPU_FAST(__sinf, (float x), sinf(x))
CUDA_ON_CPU_FAST(__cosf, (float x), cosf(x))
CUDA_ON_CPU_FAST(__tanf, (float x), tanf(x))
CUDA_ON_CPU_FAST(__tanhf, (float x), tanhf(x))
CUDA_ON_CPU_FAST(__powf, (float x, float y), powf(x, y))
CUDA_ON_CPU_FAST(__fdividef, (float x, float y), x / y)
CUDA_ON_CPU_FAST(__saturatef, (float x), x > 0.0F ? (x < 1.0F ? x : 1.0F) : 0.0F)
CUDA_ON_CPU_FAST(__frsqrt_rn, (float x), static_cast<float>(1.0 / sqrt(static_cast<double>(x))))
#undef CUDA_ON_CPU_FAST
extern "C"
    [[gnu::always_inline]] inline void __sincosf(float x, float* sine, float* cosine) noexcept {
  sincosf(x, sine, cosine);
}
inline float saturate(float x) { return __saturatef(x); }
