/// Kernels that go wrong: each launch throws, says where, and the next one works.
///
/// A GPU has no such errors: there the program says "ok" at once.
#include "check.cuh"

#ifndef CUDA_ON_CPU
int main() { return std::puts("ok") < 0; }
#else
#include <cublas_v2.h>
#include <curand.h>
#include <mma.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

constexpr unsigned full = 0xffffffffu;

__global__ void throws(int* out) {
  if (blockIdx.x == 2 && threadIdx.x == 5) throw std::out_of_range("no such element");
  out[threadIdx.x] = 1;
}
__global__ void asserts(const int* x) { assert(x[threadIdx.x] < 7 && "small"); }
__global__ void writes_to(int* x, int i) { x[threadIdx.x + i] = 1; }
__global__ void divides(int* x, int by) {
  if (threadIdx.x == 3) x[0] = 10 / (by - int(threadIdx.x));
}
__device__ __attribute__((noinline)) int deeper(volatile int* x, int depth) {
  volatile int local[64];
  local[depth % 64] = depth;
  return depth < 0 ? 0 : deeper(x, depth + 1) + local[depth % 64];
}
__global__ void recurses(int* x) {
  if (threadIdx.x == 1) x[0] = deeper(x, 1);
}
__global__ void stands_still(int* x) {
  if (threadIdx.x == 7) {
    x[0] = __shfl_sync(full, x[0], 0);
  } else if (threadIdx.x < 32) {
    __syncthreads();
  }
}
__global__ void wrong_mask(int* x) { x[threadIdx.x] = __shfl_sync(0xfu, x[threadIdx.x], 0); }
__global__ void waits_for_nobody(int* x) {
  while (atomicAdd(x, 0) == 0) {
  }
}
__global__ void never_ends(int* x) {
  while (*(volatile int*)x == 0) {
  }
}
__global__ void barriers_without_end(int* x) {
  while (*(volatile int*)x == 0) __syncthreads();
}
__global__ void simple(int* x) {
  __syncthreads();
  x[threadIdx.x] = int(threadIdx.x) + 1;
}
__global__ void launches(int* x) { simple<<<1, 32>>>(x); }
__global__ void large(int* x) {
  __shared__ int too_large[13 << 10];
  too_large[threadIdx.x] = 1;
  __syncthreads();
  x[threadIdx.x] = too_large[31 - threadIdx.x];
}

void works() {
  int* x = make<int>(256);
  simple<<<3, 256>>>(x);
  FINISH();
  for (int i = 0; i < 256; ++i) EXPECT(x[i] == i + 1);
  cudaFree(x);
}

/// Runs a launch that has to throw a text with each of these in it.
template <class F, class... Parts>
void expect_error(F launch, Parts... parts) {
  std::string text;
  try {
    launch();
  } catch (const std::runtime_error& error) {
    text = error.what();
  }
  for (const char* part : {static_cast<const char*>(parts)...}) {
    if (text.find(part) == text.npos) {
      std::printf("not in the text: %s\n%s\n", part, text.c_str());
      std::exit(1);
    }
  }
  if (std::getenv("SHOW_ERRORS")) std::printf("%s\n\n", text.c_str());
  works();
}

void test_faults() {
  int* x = make<int>(64);
  expect_error([&] { throws<<<4, 32>>>(x); }, "cuda-exception [PB229]", "no such element", "(2,0,0)", "(5,0,0)",
               "throws", "errors.cu:");
  x[20] = 9;
  expect_error([&] { asserts<<<1, 32>>>(x); }, "cuda-assert [PB227]", "x[threadIdx.x] < 7", "(20,0,0)", "errors.cu:26");
  expect_error([&] { divides<<<1, 32>>>(x, 3); }, "cuda-fault [PB225]", "zero", "errors.cu:29");
  expect_error([&] { wrong_mask<<<1, 32>>>(x); }, "cuda-misuse [PB230]", "0x0000000f", "errors.cu:46");
  expect_error([&] { launches<<<1, 32>>>(x); }, "cuda-unsupported [PB228]", "simple", "errors.cu:");
  cublasHandle_t handle;
  EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS && cudaSetDevice(-1) == cudaSuccess);
  expect_error([&] { cublasCgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, 1, 1, 1, NULL); }, "cuda-unsupported [PB228]",
               "cublasCgemm", "CUDA_ON_CPU");
  expect_error([&] { large<<<1, 32>>>(x); }, "cuda-misuse [PB230]", "too_large", "48 KB");
  expect_error([] { __syncthreads(); }, "cuda-misuse [PB230]", "outside a kernel");
  expect_error([] { __shfl_sync(full, 1, 0); }, "cuda-misuse [PB230]", "outside a kernel");
#ifndef CUDA_ON_CPU_MEMORY  // it has words of its own for these
  expect_error([&] { writes_to<<<1, 32>>>(nullptr, 0); }, "cuda-fault [PB225]", "null pointer", "writes", "errors.cu:27");
  expect_error([&] { writes_to<<<1, 32>>>(reinterpret_cast<int*>(0x123456789000), 0); }, "cuda-fault [PB225]",
               "0x1234567890", "errors.cu:27");
#endif
  expect_error([&] { recurses<<<1, 32>>>(x); }, "cuda-stack-overflow [PB226]", "errors.cu:");
  cudaFree(x);
}

void test_waiting_without_end() {
  int* x = make<int>(64);
  expect_error([&] { stands_still<<<1, 40>>>(x); }, "cuda-deadlock [PB222]", "__syncthreads", "errors.cu:43",
               "__shfl_sync", "0xffffffff", "errors.cu:41", "30 more");
  cuda_on_cpu_options(-1, ~0ull, -1, 0.2, ~0ull);
  expect_error([&] { never_ends<<<3, 64>>>(x); }, "cuda-timeout [PB224]", "0.2 s", "errors.cu:52");
  expect_error([&] { barriers_without_end<<<3, 64>>>(x); }, "cuda-timeout [PB224]", "0.2 s");
  cuda_on_cpu_options(-1, ~0ull, -1, 0, ~0ull);
  cudaFree(x);
}

#ifndef CUDA_ON_CPU_RACE  // the detector follows one launch at a time
void test_two_os_threads_launch_at_once() {
  const auto many = [] {
    for (int i = 0; i < 50; ++i) works();
  };
  std::thread one(many), other(many);
  many();
  one.join();
  other.join();
}
#else
void test_two_os_threads_launch_at_once() {}
#endif

void test_a_forked_process_launches() {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    works();
    int* x = make<int>(1);
    try {
      waits_for_nobody<<<20, 32>>>(x);
    } catch (const std::runtime_error& error) {
      const bool says_where = std::strstr(error.what(), "errors.cu:48");
      _exit(says_where && std::strstr(error.what(), "cuda-timeout [PB224]") ? 0 : 2);
    }
    _exit(3);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  works();
}

int main() {
  works();
  test_faults();
  test_waiting_without_end();
  test_two_os_threads_launch_at_once();
  test_a_forked_process_launches();
  std::puts("ok");
  return 0;
}
#endif
