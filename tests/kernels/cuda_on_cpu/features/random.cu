/// Random numbers in kernels: known ones, skips, and their distributions.
#include "check.cuh"

#if defined(CUDA_ON_CPU) || __has_include(<curand_kernel.h>)
#include <curand_kernel.h>

#include <cmath>

__global__ void known(unsigned* out) {
  curandStatePhilox4_32_10_t state;
  curand_init(0, 0, 0, &state);
  const uint4 first = curand4(&state);
  out[0] = first.x, out[1] = first.y, out[2] = first.z, out[3] = first.w;
}

/// Whether `n` numbers on, and that many skipped, are one place; and sequences are apart.
template <class State>
__global__ void skips(int* ok) {
  State walked, skipped, other;
  bool good = true;
  for (unsigned long long n = 0; n < 11; ++n) {
    curand_init(1234, 5, 0, &walked);
    curand_init(1234, 5, n, &skipped);
    curand_init(1234, 6, n, &other);
    for (unsigned long long i = 0; i < n; ++i) curand(&walked);
    const unsigned next = curand(&walked);
    good = good && next == curand(&skipped) && next != curand(&other);
    curand_init(1234, 5, 3, &walked);  // within a block of four
    skipahead(n, &walked);
    curand_init(1234, 5, n + 3, &skipped);
    good = good && curand(&walked) == curand(&skipped);
  }
  curand_init(1234, 5, 0, &walked);
  skipahead(1000, &walked);
  curand_init(1234, 5, 1000, &skipped);
  ok[0] = good && curand(&walked) == curand(&skipped);
}

template <class State>
__global__ void draw(float* uniform, float* normal, double* wide) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  State state;
  curand_init(42, i, 0, &state);
  uniform[i] = curand_uniform(&state);
  normal[2 * i] = curand_normal(&state), normal[2 * i + 1] = curand_normal(&state);
  wide[2 * i] = curand_uniform_double(&state), wide[2 * i + 1] = curand_normal_double(&state);
}

template <class State>
void test_distributions() {
  const int n = 4096;
  float *uniform = make<float>(n), *normal = make<float>(2 * n);
  double* wide = make<double>(2 * n);
  draw<State><<<n / 128, 128>>>(uniform, normal, wide);
  FINISH();
  double mean = 0, wide_mean = 0, sum = 0, squares = 0, wide_squares = 0;
  for (int i = 0; i < n; ++i) {
    EXPECT(uniform[i] > 0.0f && uniform[i] <= 1.0f && wide[2 * i] > 0.0 && wide[2 * i] <= 1.0);
    mean += uniform[i] / n, wide_mean += wide[2 * i] / n;
    wide_squares += wide[2 * i + 1] * wide[2 * i + 1] / n;
    for (int k = 0; k < 2; ++k)
      sum += normal[2 * i + k], squares += normal[2 * i + k] * normal[2 * i + k];
  }
  // Within five standard deviations.
  EXPECT(std::fabs(mean - 0.5) < 5 * 0.2887 / 64 && std::fabs(wide_mean - 0.5) < 5 * 0.2887 / 64);
  EXPECT(std::fabs(sum / (2 * n)) < 5 / 90.5 &&
         std::fabs(squares / (2 * n) - 1) < 5 * 1.414 / 90.5);
  EXPECT(std::fabs(wide_squares - 1) < 5 * 1.414 / 64);
  cudaFree(uniform), cudaFree(normal), cudaFree(wide);
}

__global__ void poisson(unsigned* sums) {
  curandStatePhilox4_32_10_t state;
  curand_init(11, threadIdx.x, 0, &state);
  atomicAdd(&sums[0], curand_poisson(&state, 10));
  atomicAdd(&sums[1], curand_poisson(&state, 5000));
}

int main() {
  unsigned* out = make<unsigned>(4);
  known<<<1, 1>>>(out);
  FINISH();
  // The generator's authors give these for a counter and a key of zeros.
  EXPECT(out[0] == 0x6627E8D5u && out[1] == 0xE169C58Du && out[2] == 0xBC57AC4Cu &&
         out[3] == 0x9B00DBD8u);
  int* ok = make<int>(1);
  skips<curandStatePhilox4_32_10_t><<<1, 1>>>(ok);
  FINISH();
  EXPECT(ok[0] == 1);
  ok[0] = 0;
  skips<curandState_t><<<1, 1>>>(ok);
  FINISH();
  EXPECT(ok[0] == 1);
  test_distributions<curandStatePhilox4_32_10_t>();
  test_distributions<curandState_t>();
  out[0] = out[1] = 0;
  poisson<<<1, 1024>>>(out);
  FINISH();
  EXPECT(std::fabs(out[0] / 1024.0 - 10) < 5 * 3.17 / 32);
  EXPECT(std::fabs(out[1] / 1024.0 - 5000) < 5 * 70.8 / 32);
  cudaFree(out), cudaFree(ok);
  std::puts("ok");
  return 0;
}
#else
int main() { return std::puts("ok") < 0; }
#endif
