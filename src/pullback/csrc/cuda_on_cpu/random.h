/// Random numbers in kernels: cuRAND's generators Philox and XORWOW, from the published algorithms.
///
/// For one seed, sequence and offset the integers are those of a GPU; numbers computed from them
/// (normal ones) differ in the last bits, as logarithms and sines do.
///
/// Source: J. Salmon et al., *Parallel random numbers: as easy as 1, 2, 3* (2011); G. Marsaglia,
/// *Xorshift RNGs* (2003).
#pragma once

#include "include/cuda_runtime.h"

struct curandStatePhilox4_32_10 {
  uint4 counter, output;
  uint2 key;
  unsigned used;  // of the four numbers of `output`
  bool has_normal, has_normal_double;
  float normal;
  double normal_double;
};
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

struct curandStateXORWOW {
  unsigned d, v[5];
  bool has_normal, has_normal_double;
  float normal;
  double normal_double;
};
typedef curandStateXORWOW curandStateXORWOW_t;
typedef curandStateXORWOW curandState_t;
typedef curandStateXORWOW curandState;

#pragma GCC visibility push(default)
namespace cuda_on_cpu {
/// Skips 2^67 steps for each sequence, and one for each unit of the offset.
void skip_xorwow(unsigned (&v)[5], unsigned long long sequences, unsigned long long steps);
}  // namespace cuda_on_cpu
#pragma GCC visibility pop

namespace cuda_on_cpu {

inline uint4 philox(uint4 counter, uint2 key) {
  for (int round = 0; round < 10; ++round) {
    const auto a = 0xD2511F53ULL * counter.x, b = 0xCD9E8D57ULL * counter.z;
    counter = {static_cast<unsigned>(b >> 32) ^ counter.y ^ key.x, static_cast<unsigned>(b),
               static_cast<unsigned>(a >> 32) ^ counter.w ^ key.y, static_cast<unsigned>(a)};
    key.x += 0x9E3779B9U;
    key.y += 0xBB67AE85U;
  }
  return counter;
}
inline void add(unsigned& low, unsigned& high, unsigned long long n, unsigned long long* carry) {
  const unsigned long long before = static_cast<unsigned long long>(high) << 32 | low;
  const unsigned long long after = before + n;
  low = static_cast<unsigned>(after), high = static_cast<unsigned>(after >> 32);
  *carry = after < before;
}
inline void advance(curandStatePhilox4_32_10& state, unsigned long long blocks) {
  unsigned long long carry;
  add(state.counter.x, state.counter.y, blocks, &carry);
  add(state.counter.z, state.counter.w, carry, &carry);
  state.output = philox(state.counter, state.key);
}

}  // namespace cuda_on_cpu

inline void skipahead(unsigned long long n, curandStatePhilox4_32_10* state) {
  const unsigned long long used = state->used + n % 4;
  state->used = static_cast<unsigned>(used % 4);
  cuda_on_cpu::advance(*state, n / 4 + used / 4);
}
inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10* state) {
  unsigned long long carry;
  cuda_on_cpu::add(state->counter.z, state->counter.w, n, &carry);
  cuda_on_cpu::advance(*state, 0);
}
inline void curand_init(unsigned long long seed, unsigned long long sequence,
                        unsigned long long offset, curandStatePhilox4_32_10* state) {
  *state = {};
  state->key = {static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32)};
  skipahead_sequence(sequence, state);
  skipahead(offset, state);
}
inline unsigned curand(curandStatePhilox4_32_10* state) {
  const unsigned numbers[] = {state->output.x, state->output.y, state->output.z, state->output.w};
  const unsigned number = numbers[state->used];
  if (++state->used == 4) state->used = 0, cuda_on_cpu::advance(*state, 1);
  return number;
}
inline uint4 curand4(curandStatePhilox4_32_10* state) {
  const unsigned x = curand(state), y = curand(state), z = curand(state), w = curand(state);
  return {x, y, z, w};
}

inline void skipahead(unsigned long long n, curandStateXORWOW* state) {
  cuda_on_cpu::skip_xorwow(state->v, 0, n);
  state->d += 362437U * static_cast<unsigned>(n);
}
inline void skipahead_sequence(unsigned long long n, curandStateXORWOW* state) {
  cuda_on_cpu::skip_xorwow(state->v, n, 0);
}
inline void curand_init(unsigned long long seed, unsigned long long sequence,
                        unsigned long long offset, curandStateXORWOW* state) {
  const unsigned a = 1099087573U * (static_cast<unsigned>(seed) ^ 0xAAD26B49U);
  const unsigned b = 2591861531U * (static_cast<unsigned>(seed >> 32) ^ 0xF7DCEFDDU);
  *state = {6615241U + b + a,
            {123456789U + a, 362436069U ^ a, 521288629U + b, 88675123U ^ b, 5783321U + a},
            false,
            false,
            0.0F,
            0.0};
  skipahead_sequence(sequence, state);
  skipahead(offset, state);
}
inline unsigned curand(curandStateXORWOW* state) {
  unsigned (&v)[5] = state->v;
  const unsigned t = v[0] ^ v[0] >> 2;
  v[0] = v[1], v[1] = v[2], v[2] = v[3], v[3] = v[4];
  v[4] = (v[4] ^ v[4] << 4) ^ (t ^ t << 1);
  state->d += 362437U;
  return v[4] + state->d;
}

namespace cuda_on_cpu {

// From integers to (0, 1]: without 0 and with 1.
inline float uniform(unsigned x) { return x * 0x1p-32F + 0x1p-33F; }
inline double uniform_double(unsigned x) { return x * 0x1p-32 + 0x1p-33; }
inline double uniform_double(unsigned x, unsigned y) {
  const unsigned long long z =
      static_cast<unsigned long long>(x) ^ static_cast<unsigned long long>(y) << 21;
  return static_cast<double>(z) * 0x1p-53 + 0x1p-54;
}
/// Two normal numbers by the method of Box and Muller.
inline float2 normal(unsigned x, unsigned y) {
  constexpr float turn = 6.2831855F * 0x1p-32F;
  const float size = sqrtf(-2.0F * logf(uniform(x)));
  float2 result;
  sincosf(y * turn + turn / 2, &result.x, &result.y);
  return {result.x * size, result.y * size};
}
inline double2 normal_double(double u, double v) {
  const double size = sqrt(-2.0 * log(u));
  double2 result;
  sincospi(2.0 * v, &result.x, &result.y);
  return {result.x * size, result.y * size};
}

template <class State>
double next_uniform_double(State* state) {
  const unsigned x = curand(state);
  return uniform_double(x, curand(state));
}
// cuRAND makes a double of Philox from a single number.
inline double next_uniform_double(curandStatePhilox4_32_10* state) {
  return uniform_double(curand(state));
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_RANDOM(State)                                                              \
  inline float curand_uniform(State* state) { return cuda_on_cpu::uniform(curand(state)); }    \
  inline double curand_uniform_double(State* state) {                                          \
    return cuda_on_cpu::next_uniform_double(state);                                            \
  }                                                                                            \
  inline float2 curand_normal2(State* state) {                                                 \
    const unsigned x = curand(state);                                                          \
    return cuda_on_cpu::normal(x, curand(state));                                              \
  }                                                                                            \
  inline double2 curand_normal2_double(State* state) {                                         \
    const unsigned x = curand(state), y = curand(state), z = curand(state);                    \
    return cuda_on_cpu::normal_double(cuda_on_cpu::uniform_double(x, y),                       \
                                      cuda_on_cpu::uniform_double(z, curand(state)));          \
  }                                                                                            \
  /* The second of a pair is kept for the next call. */                                        \
  inline float curand_normal(State* state) {                                                   \
    if ((state->has_normal = !state->has_normal)) {                                            \
      const float2 both = curand_normal2(state);                                               \
      state->normal = both.y;                                                                  \
      return both.x;                                                                           \
    }                                                                                          \
    return state->normal;                                                                      \
  }                                                                                            \
  inline double curand_normal_double(State* state) {                                           \
    if ((state->has_normal_double = !state->has_normal_double)) {                              \
      const double2 both = curand_normal2_double(state);                                       \
      state->normal_double = both.y;                                                           \
      return both.x;                                                                           \
    }                                                                                          \
    return state->normal_double;                                                               \
  }                                                                                            \
  inline float curand_log_normal(State* state, float mean, float deviation) {                  \
    return expf(mean + deviation * curand_normal(state));                                      \
  }
CUDA_ON_CPU_RANDOM(curandStatePhilox4_32_10)
CUDA_ON_CPU_RANDOM(curandStateXORWOW)
#undef CUDA_ON_CPU_RANDOM

inline float4 curand_uniform4(curandStatePhilox4_32_10* state) {
  const uint4 x = curand4(state);
  return {cuda_on_cpu::uniform(x.x), cuda_on_cpu::uniform(x.y), cuda_on_cpu::uniform(x.z),
          cuda_on_cpu::uniform(x.w)};
}
inline double2 curand_uniform2_double(curandStatePhilox4_32_10* state) {
  const uint4 x = curand4(state);
  return {cuda_on_cpu::uniform_double(x.x, x.y), cuda_on_cpu::uniform_double(x.z, x.w)};
}
inline float4 curand_normal4(curandStatePhilox4_32_10* state) {
  const uint4 x = curand4(state);
  const float2 a = cuda_on_cpu::normal(x.x, x.y), b = cuda_on_cpu::normal(x.z, x.w);
  return {a.x, a.y, b.x, b.y};
}

/// A Poisson number, by counting arrivals until `mean`; for a large mean, from the normal
/// approximation. The numbers differ from cuRAND's.
template <class State>
inline unsigned curand_poisson(State* state, double mean) {
  if (mean > 4000) return unsigned(mean + sqrt(mean) * curand_normal_double(state) + 0.5);
  unsigned count = 0;
  double sum = -log(curand_uniform_double(state));
  for (; sum < mean; sum -= log(curand_uniform_double(state))) ++count;
  return count;
}
