/// Real functions: CUDA's own, and those built from them, each right at its extremes.
///
/// V is float or double. On the host g++'s functions stand in for CUDA's.
#pragma once

#include "numbers.cuh"

#if defined(__CUDA_ARCH__)
#define PULLBACK_MATH(name) ::name
#else
#define PULLBACK_MATH(name) __builtin_##name
#endif

// expf for float and not exp: that would be double arithmetic, 64 times as slow on many a GPU.
#define PULLBACK_UNARY(name, library)                                          \
  PULLBACK_INLINE float name(float x) { return PULLBACK_MATH(library##f)(x); } \
  PULLBACK_INLINE double name(double x) { return PULLBACK_MATH(library)(x); }
#define PULLBACK_BINARY(name)                                                                  \
  PULLBACK_INLINE float name(float x, float y) { return PULLBACK_MATH(name##f)(x, y); }        \
  PULLBACK_INLINE double name(double x, double y) { return PULLBACK_MATH(name)(x, y); }

namespace pullback::formula {

PULLBACK_UNARY(exp, exp)
PULLBACK_UNARY(exp2, exp2)
PULLBACK_UNARY(expm1, expm1)
PULLBACK_UNARY(log, log)
PULLBACK_UNARY(log2, log2)
PULLBACK_UNARY(log10, log10)
PULLBACK_UNARY(log1p, log1p)
PULLBACK_UNARY(sin, sin)
PULLBACK_UNARY(cos, cos)
PULLBACK_UNARY(tan, tan)
PULLBACK_UNARY(asin, asin)
PULLBACK_UNARY(acos, acos)
PULLBACK_UNARY(atan, atan)
PULLBACK_UNARY(sinh, sinh)
PULLBACK_UNARY(cosh, cosh)
PULLBACK_UNARY(tanh, tanh)
PULLBACK_UNARY(asinh, asinh)
PULLBACK_UNARY(acosh, acosh)
PULLBACK_UNARY(atanh, atanh)
PULLBACK_UNARY(erf, erf)
PULLBACK_UNARY(erfc, erfc)
PULLBACK_UNARY(lgamma, lgamma)
PULLBACK_UNARY(sqrt, sqrt)
PULLBACK_UNARY(abs, fabs)
PULLBACK_UNARY(floor, floor)
PULLBACK_UNARY(ceil, ceil)
PULLBACK_UNARY(trunc, trunc)
PULLBACK_UNARY(round, rint)  // halves to even
PULLBACK_BINARY(pow)
PULLBACK_BINARY(atan2)
PULLBACK_BINARY(hypot)
PULLBACK_BINARY(fmod)
PULLBACK_BINARY(copysign)

PULLBACK_INLINE float fma(float x, float y, float z) { return PULLBACK_MATH(fmaf)(x, y, z); }
PULLBACK_INLINE double fma(double x, double y, double z) { return PULLBACK_MATH(fma)(x, y, z); }

#if defined(__CUDA_ARCH__)
PULLBACK_INLINE float rsqrt(float x) { return ::rsqrtf(x); }
PULLBACK_INLINE double rsqrt(double x) { return ::rsqrt(x); }
#else
template <class V>
PULLBACK_INLINE V rsqrt(V x) {
  return V(1) / sqrt(x);
}
#endif

template <class V>
PULLBACK_INLINE V frac(V x) {
  return x - trunc(x);
}
template <class V>
PULLBACK_INLINE Truth isnan(V x) {
  return x != x;
}
template <class V>
PULLBACK_INLINE Truth isinf(V x) {
  return abs(x) == infinity<V>;
}
template <class V>
PULLBACK_INLINE Truth isfinite(V x) {
  return abs(x) < infinity<V>;
}
template <class V>
PULLBACK_INLINE Truth signbit(V x) {
  return copysign(V(1), x) < V(0);
}

// The comparisons are written so that a NaN is kept (maximum, relu), ignored (fmax), or gives 0
// (sign); of equal values, such as 0 and -0, the first is taken.
template <class V>
PULLBACK_INLINE V maximum(V a, V b) {
  return b > a || b != b ? b : a;
}
template <class V>
PULLBACK_INLINE V minimum(V a, V b) {
  return b < a || b != b ? b : a;
}
template <class V>
PULLBACK_INLINE V fmax(V a, V b) {
  return a >= b || b != b ? a : b;
}
template <class V>
PULLBACK_INLINE V fmin(V a, V b) {
  return a <= b || b != b ? a : b;
}
template <class V>
PULLBACK_INLINE V relu(V x) {
  return x <= V(0) ? V(0) : x;
}
template <class V>
PULLBACK_INLINE V sign(V x) {
  return V(x > V(0)) - V(x < V(0));
}

/// Has the sign of the divisor, as in Python.
template <class V>
PULLBACK_INLINE V remainder(V a, V b) {
  const V rest = fmod(a, b);
  return rest != V(0) && (rest < V(0)) != (b < V(0)) ? rest + b : rest;
}

/// PyTorch's, which is Python's: the floor of the exact quotient, not of the rounded one.
template <class V>
PULLBACK_INLINE V floor_divide(V a, V b) {
  if (b == V(0)) return a / b;
  const V rest = fmod(a, b), exact = (a - rest) / b;
  const V quotient = rest != V(0) && (rest < V(0)) != (b < V(0)) ? exact - V(1) : exact;
  if (quotient == V(0)) return copysign(V(0), a / b);
  const V down = floor(quotient);
  return quotient - down > V(0.5) ? down + V(1) : down;
}

/// xⁿ by squaring, for an exponent that is in the formula.
template <int64_t n, class V>
PULLBACK_INLINE V powi(V x) {
  if constexpr (n < 0) {
    static_assert(!is_same<V, int64_t>, "an integer has no negative powers");
    return V(1) / powi<-n>(x);
  } else if constexpr (n == 0) {
    return V(1);
  } else if constexpr (n == 1) {
    return x;
  } else if constexpr (is_same<V, int64_t>) {
    const V half = powi<n / 2>(x), square = wrapped_product(half, half);
    return n % 2 ? wrapped_product(square, x) : square;
  } else {
    const V half = powi<n / 2>(x), square = half * half;
    if constexpr (n % 2) return square * x;
    return square;
  }
}

template <class V>
PULLBACK_INLINE V sinc(V x) {
  const V angle = V(3.14159265358979323846) * x;
  return x == V(0) ? V(1) : sin(angle) / angle;
}

// exp(-|x|) cannot overflow, and keeps the digits of sigmoid at a very negative x.
template <class V>
PULLBACK_INLINE V sigmoid(V x) {
  const V small = exp(-abs(x));
  return (x < V(0) ? small : V(1)) / (V(1) + small);
}
// Words of the loops on a CPU, which are other instructions there.
template <class V>
PULLBACK_INLINE V exp_of_minus(V x) {
  return exp(-x);
}
template <class V>
PULLBACK_INLINE V expm1_beside_exp(V x) {
  return expm1(x);
}
template <class V>
PULLBACK_INLINE V sigmoid_alone(V x) {
  return sigmoid(x);
}
template <class V>
PULLBACK_INLINE V sigmoid_of_minus(V x) {
  return sigmoid(-x);
}
template <class V>
PULLBACK_INLINE V softplus(V x) {
  return maximum(x, V(0)) + log1p(exp(-abs(x)));
}
template <class V>
PULLBACK_INLINE V log_sigmoid(V x) {
  return minimum(x, V(0)) - log1p(exp(-abs(x)));
}

template <class V>
PULLBACK_INLINE V logit(V x) {
  return log(x / (V(1) - x));
}

/// tanh(softplus(x)) is n / (n + 2) with n = eˣ(eˣ + 2). From 20 on it is 1 to the last bit.
template <class V>
PULLBACK_INLINE V tanh_softplus(V x) {
  const V power = exp(x > V(20) ? V(20) : x), n = power * (power + V(2));
  return n / (n + V(2));
}

/// x Φ(x), with Φ(x) = erfc(-x/√2)/2, which keeps its digits where 1 + erf loses them.
///
/// erfc turns a relative error of its argument z into one 2z² times as large, so we correct for the
/// rounding of z and of the factor itself: d(log erfc)/dz is -2z and more.
template <class V>
PULLBACK_INLINE V gelu(V x) {
  constexpr double root = -0.70710678118654752440, beyond_double = 4.8336466567264567e-17;
  constexpr V factor = V(root), lacking = V(root - double(factor) + beyond_double);
  const V z = x * factor;
  const V lost = fma(x, factor, -z) + x * lacking;
  const V change = z > V(0) && z < V(30) ? (z + z) * lost : V(0);
  const V tail = erfc(z);
  return V(0.5) * x * (tail - tail * change);
}

template <class V>
PULLBACK_INLINE V times_quotient(V factor, V above, V below, V quotient) {
  const V size = abs(quotient);
  return size > V(1e-37) && size < V(1e38) ? quotient * above : factor * (above / below);
}
template <class V>
PULLBACK_INLINE V gelu_slope(V x) {
  const V power = exp(x * x * V(-0.5)) * V(0.3989422804014327);
  return V(0.5) * erfc(x * V(-0.7071067811865476)) + x * power;
}

// log(eᵃ + eᵇ), exact where one of the two is far larger; inf - inf must not occur.
template <class V>
PULLBACK_INLINE V logaddexp(V a, V b) {
  const V distance = a == b ? V(0) : abs(a - b);
  return maximum(a, b) + log1p(exp(-distance));
}
template <class V>
PULLBACK_INLINE V logaddexp2(V a, V b) {
  const V distance = a == b ? V(0) : abs(a - b);
  return maximum(a, b) + log1p(exp2(-distance)) * V(1.44269504088896340736);
}

// 0 where x is 0, whatever the logarithm, unless it is NaN.
template <class V>
PULLBACK_INLINE V xlogy(V x, V y) {
  return x == V(0) && y == y ? V(0) : x * log(y);
}
template <class V>
PULLBACK_INLINE V xlog1py(V x, V y) {
  return x == V(0) && y == y ? V(0) : x * log1p(y);
}

}  // namespace pullback::formula
