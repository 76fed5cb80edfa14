/// The runtime API: memory, symbols, streams, events, the device, kernels by pointer.
#include "check.cuh"

#include <cstring>
#include <string>
#include <vector>

__device__ float table[8];
__constant__ int scale;
__device__ int counter = 3;

void test_errors() {
  EXPECT(cudaGetLastError() == cudaSuccess);
  EXPECT(cudaSetDevice(1000) == cudaErrorInvalidDevice);
  EXPECT(cudaPeekAtLastError() == cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaSuccess);
  EXPECT(std::string(cudaGetErrorName(cudaErrorMemoryAllocation)) == "cudaErrorMemoryAllocation");
  EXPECT(std::string(cudaGetErrorString(cudaErrorInvalidValue)) == "invalid argument");
  EXPECT(std::string(cudaGetErrorString(cudaSuccess)) == "no error");
  EXPECT(std::strlen(cudaGetErrorString(cudaErrorECCUncorrectable)) > 5);
}

void test_memory() {
  float* device = nullptr;
  std::vector<float> host(1000, 2.5f), back(1000);
  EXPECT(cudaMalloc(&device, host.size() * sizeof(float)) == cudaSuccess);
  EXPECT(reinterpret_cast<size_t>(device) % 256 == 0);
  EXPECT(cudaMemcpy(device, host.data(), 4000, cudaMemcpyHostToDevice) == cudaSuccess);
  EXPECT(cudaMemcpyAsync(back.data(), device, 4000, cudaMemcpyDeviceToHost, nullptr) ==
         cudaSuccess);
  EXPECT(cudaDeviceSynchronize() == cudaSuccess && back == host);
  EXPECT(cudaMemset(device, 0, 2000) == cudaSuccess);
  EXPECT(cudaMemcpy(back.data(), device, 4000, cudaMemcpyDefault) == cudaSuccess);
  EXPECT(back[499] == 0.0f && back[500] == 2.5f);
#if defined(CUDA_ON_CPU)  // a GPU allocates in larger pieces, and may not notice
  EXPECT(cudaMemcpy(device, host.data(), 4001, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  EXPECT(cudaMemset(device + 999, 0, 8) == cudaErrorInvalidValue);
#endif

  cudaPointerAttributes about;
  EXPECT(cudaPointerGetAttributes(&about, device + 10) == cudaSuccess);
  EXPECT(about.type == cudaMemoryTypeDevice && about.device == 0 &&
         about.devicePointer == device + 10);
  EXPECT(cudaPointerGetAttributes(&about, host.data()) == cudaSuccess);
  EXPECT(about.type == cudaMemoryTypeUnregistered);

  EXPECT(cudaFree(nullptr) == cudaSuccess && cudaFree(device) == cudaSuccess);
  EXPECT(cudaFree(device) == cudaErrorInvalidValue);
  EXPECT(cudaFree(host.data()) == cudaErrorInvalidValue);
  cudaGetLastError();

  float *pinned = nullptr, *mapped = nullptr;
  EXPECT(cudaMallocHost(&pinned, 64) == cudaSuccess &&
         cudaHostAlloc(&mapped, 64, cudaHostAllocMapped) == cudaSuccess);
  float* seen = nullptr;
  EXPECT(cudaHostGetDevicePointer(&seen, mapped, 0) == cudaSuccess && seen != nullptr);
  EXPECT(cudaPointerGetAttributes(&about, pinned) == cudaSuccess &&
         about.type == cudaMemoryTypeHost);
  EXPECT(cudaFreeHost(pinned) == cudaSuccess && cudaFreeHost(mapped) == cudaSuccess);
  size_t free = 0, total = 0;
  EXPECT(cudaMemGetInfo(&free, &total) == cudaSuccess && free > 0 && free <= total);
}

void test_pitched_memory() {
  int* pitched = nullptr;
  size_t pitch = 0;
  EXPECT(cudaMallocPitch(&pitched, &pitch, 5 * sizeof(int), 3) == cudaSuccess && pitch >= 20);
  int from[3][5], to[3][5];
  for (int i = 0; i < 15; ++i) from[i / 5][i % 5] = i;
  EXPECT(cudaMemcpy2D(pitched, pitch, from, 20, 20, 3, cudaMemcpyHostToDevice) == cudaSuccess);
  EXPECT(cudaMemset2D(pitched, pitch, 0, 8, 2) == cudaSuccess);
  EXPECT(cudaMemcpy2D(to, 20, pitched, pitch, 20, 3, cudaMemcpyDeviceToHost) == cudaSuccess);
  EXPECT(to[0][1] == 0 && to[0][2] == 2 && to[1][4] == 9 && to[2][0] == 10);
  EXPECT(cudaMemcpy2D(to, 4, pitched, pitch, 20, 3, cudaMemcpyDeviceToHost) ==
         cudaErrorInvalidPitchValue);
  cudaGetLastError();
  cudaFree(pitched);
  cudaPitchedPtr cube;
  EXPECT(cudaMalloc3D(&cube, make_cudaExtent(8, 2, 2)) == cudaSuccess && cube.pitch >= 8);
  EXPECT(cudaMemset3D(cube, 1, make_cudaExtent(8, 2, 2)) == cudaSuccess);
  cudaFree(cube.ptr);
}

__global__ void use_symbols(float* out) {
  out[threadIdx.x] = table[threadIdx.x] * scale;
  if (threadIdx.x == 0) counter += 1;
}
void test_symbols() {
  float values[8], twice[8];
  for (int i = 0; i < 8; ++i) values[i] = i + 0.5f;
  const int three = 3;
  EXPECT(cudaMemcpyToSymbol(table, values, sizeof values) == cudaSuccess);
  EXPECT(cudaMemcpyToSymbol(table, values + 7, sizeof(float), 2 * sizeof(float)) == cudaSuccess);
  EXPECT(cudaMemcpyToSymbol(scale, &three, sizeof three) == cudaSuccess);
  float* out = make<float>(8);
  use_symbols<<<1, 8>>>(out);
  FINISH();
  EXPECT(out[1] == 4.5f && out[2] == 22.5f);
  int count = 0;
  EXPECT(cudaMemcpyFromSymbol(&count, counter, sizeof count) == cudaSuccess && count == 4);
  void* address = nullptr;
  size_t size = 0;
  EXPECT(cudaGetSymbolAddress(&address, table) == cudaSuccess &&
         cudaGetSymbolSize(&size, table) == cudaSuccess);
  EXPECT(size == sizeof table);
  EXPECT(cudaMemcpy(twice, address, sizeof twice, cudaMemcpyDeviceToHost) == cudaSuccess &&
         twice[7] == 7.5f);
  EXPECT(cudaMemcpyToSymbol(scale, &three, 8) == cudaErrorInvalidValue);
  cudaGetLastError();
  cudaFree(out);
}

void test_streams_and_events() {
  cudaStream_t stream, other;
  EXPECT(cudaStreamCreate(&stream) == cudaSuccess);
  EXPECT(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess &&
         stream != other);
  cudaEvent_t start, end, untimed;
  EXPECT(cudaEventCreate(&start) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess);
  EXPECT(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming) == cudaSuccess);
  float milliseconds = -1.0f;
  EXPECT(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorInvalidResourceHandle);
  float* out = make<float>(8);
  EXPECT(cudaEventRecord(start, stream) == cudaSuccess);
  use_symbols<<<1, 8, 0, stream>>>(out);
  EXPECT(cudaEventRecord(end, stream) == cudaSuccess &&
         cudaEventRecord(untimed, stream) == cudaSuccess);
  EXPECT(cudaStreamWaitEvent(other, untimed, 0) == cudaSuccess);
  EXPECT(cudaStreamSynchronize(stream) == cudaSuccess && cudaEventSynchronize(end) == cudaSuccess);
  EXPECT(cudaEventQuery(end) == cudaSuccess && cudaStreamQuery(stream) == cudaSuccess);
  EXPECT(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess && milliseconds >= 0.0f);
  EXPECT(cudaEventElapsedTime(&milliseconds, start, untimed) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  int called = 0;
  EXPECT(cudaLaunchHostFunc(
             stream, [](void* data) { *static_cast<int*>(data) = 5; }, &called) == cudaSuccess);
  EXPECT(cudaStreamSynchronize(stream) == cudaSuccess && called == 5);
  cudaStreamCaptureStatus status;
  EXPECT(cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
         status == cudaStreamCaptureStatusNone);
  unsigned flags = 7;
  EXPECT(cudaStreamGetFlags(other, &flags) == cudaSuccess && flags == cudaStreamNonBlocking);
  EXPECT(cudaEventDestroy(start) == cudaSuccess && cudaEventDestroy(end) == cudaSuccess);
  EXPECT(cudaEventDestroy(untimed) == cudaSuccess);
  EXPECT(cudaStreamDestroy(stream) == cudaSuccess && cudaStreamDestroy(other) == cudaSuccess);
  float* later = nullptr;
  EXPECT(cudaMallocAsync(&later, 64, nullptr) == cudaSuccess &&
         cudaFreeAsync(later, nullptr) == cudaSuccess);
  EXPECT(cudaDeviceSynchronize() == cudaSuccess);
  cudaFree(out);
}

void test_device() {
  int count = 0, device = -1, warp = 0, threads = 0, version = 0;
  EXPECT(cudaGetDeviceCount(&count) == cudaSuccess && count >= 1);
  EXPECT(cudaGetDevice(&device) == cudaSuccess && device == 0);
  cudaDeviceProp about;
  EXPECT(cudaGetDeviceProperties(&about, 0) == cudaSuccess);
  EXPECT(about.warpSize == 32 && about.maxThreadsPerBlock == 1024 && about.major >= 7);
  EXPECT(about.maxGridSize[1] == 65535 && about.sharedMemPerBlock == 49152 && about.name[0] != 0);
  EXPECT(cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, 0) == cudaSuccess && warp == 32);
  EXPECT(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerBlock, 0) == cudaSuccess &&
         threads == 1024);
  EXPECT(cudaRuntimeGetVersion(&version) == cudaSuccess && version >= 12000);
  size_t stack = 0;
  EXPECT(cudaDeviceSetLimit(cudaLimitStackSize, 4096) == cudaSuccess);
  EXPECT(cudaDeviceGetLimit(&stack, cudaLimitStackSize) == cudaSuccess && stack >= 4096);
}

template <class T>
__global__ void add(T* out, const T* in, T more, int count) {
  extern __shared__ char dynamic[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) dynamic[0] = 1;
  if (i < count) out[i] = in[i] + more;
}

void test_kernels_by_pointer() {
  double* in = make<double>(100);
  double* out = make<double>(100);
  for (int i = 0; i < 100; ++i) in[i] = i;
  double more = 0.5;
  int n = 100;
  void* arguments[] = {&out, &in, &more, &n};
  EXPECT(cudaLaunchKernel((void*)add<double>, dim3(4), dim3(32), arguments, 16, nullptr) ==
         cudaSuccess);
  FINISH();
  EXPECT(out[0] == 0.5 && out[99] == 99.5);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(4), config.blockDim = dim3(32), config.dynamicSmemBytes = 16;
  EXPECT(cudaLaunchKernelEx(&config, add<double>, out, static_cast<const double*>(in), 1.5, 100) ==
         cudaSuccess);
  FINISH();
  EXPECT(out[99] == 100.5);

  cudaFuncAttributes about;
  EXPECT(cudaFuncGetAttributes(&about, add<double>) == cudaSuccess &&
         about.maxThreadsPerBlock == 1024);
  int blocks = 0, threads = 0;
  EXPECT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add<double>, 128, 0) ==
             cudaSuccess &&
         blocks >= 1);
  EXPECT(cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, add<double>, 0, 0) == cudaSuccess);
  EXPECT(threads >= 32 && threads <= 1024 && blocks >= 1);
  EXPECT(cudaFuncSetCacheConfig(add<double>, cudaFuncCachePreferL1) == cudaSuccess);

  // More than 48 KB have to be asked for.
  add<<<4, 32, 60000>>>(out, in, 2.0, 100);
  EXPECT(cudaGetLastError() != cudaSuccess);
  EXPECT(cudaFuncSetAttribute(add<double>, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000) ==
         cudaSuccess);
  add<<<4, 32, 60000>>>(out, in, 2.0, 100);
  FINISH();
  EXPECT(out[99] == 101.0);
  add<<<1, 2000>>>(out, in, 2.0, 100);
  EXPECT(refuses_shape(cudaGetLastError()));
  cudaFree(in), cudaFree(out);
}

int main() {
  test_errors();
  test_memory();
  test_pitched_memory();
  test_symbols();
  test_streams_and_events();
  test_device();
  test_kernels_by_pointer();
  std::puts("ok");
  return 0;
}
