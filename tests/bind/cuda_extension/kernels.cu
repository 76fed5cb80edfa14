#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/TensorAccessor.h>
#include <ATen/cuda/Atomic.cuh>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraphsUtils.cuh>
#include <ATen/cuda/DeviceUtils.cuh>
#include <ATen/cuda/detail/KernelUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_fp16.h>

#include "rows.cuh"

constexpr int THREADS = 64;

// The cell of an LSTM without a forget gate: packed accessors, two axes of blocks.
template <class scalar_t>
__global__ void lltm_kernel(
    const at::PackedTensorAccessor32<scalar_t, 3, at::RestrictPtrTraits> gates,
    const at::PackedTensorAccessor32<scalar_t, 2, at::RestrictPtrTraits> old_cell,
    at::PackedTensorAccessor32<scalar_t, 2, at::RestrictPtrTraits> new_h,
    at::PackedTensorAccessor32<scalar_t, 2, at::RestrictPtrTraits> new_cell) {
  const int n = blockIdx.y;
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c < gates.size(2)) {
    const scalar_t input = 1 / (1 + exp(-gates[n][0][c]));
    const scalar_t output = 1 / (1 + exp(-gates[n][1][c]));
    new_cell[n][c] = old_cell[n][c] + tanh(gates[n][2][c]) * input;
    new_h[n][c] = tanh(new_cell[n][c]) * output;
  }
}

std::vector<at::Tensor> lltm_cuda(at::Tensor gates, at::Tensor old_cell) {
  const at::cuda::OptionalCUDAGuard guard(device_of(gates));
  auto new_h = at::zeros_like(old_cell);
  auto new_cell = at::zeros_like(old_cell);
  const dim3 blocks((gates.size(2) + THREADS - 1) / THREADS, gates.size(0));
  AT_DISPATCH_FLOATING_TYPES(gates.scalar_type(), "lltm", ([&] {
    lltm_kernel<scalar_t><<<blocks, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
        gates.packed_accessor32<scalar_t, 3, at::RestrictPtrTraits>(),
        old_cell.packed_accessor32<scalar_t, 2, at::RestrictPtrTraits>(),
        new_h.packed_accessor32<scalar_t, 2, at::RestrictPtrTraits>(),
        new_cell.packed_accessor32<scalar_t, 2, at::RestrictPtrTraits>());
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {new_h, new_cell};
}

// Dynamic shared memory and barriers; the sum of each warp by shuffles.
__global__ void sum_rows(const float* x, float* y, int columns) {
  extern __shared__ float sums[];
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += x[blockIdx.x * columns + c];
  for (int step = 16; step > 0; step /= 2) sum += WARP_SHFL_XOR(sum, step);
  if (threadIdx.x % C10_WARP_SIZE == 0) sums[threadIdx.x / C10_WARP_SIZE] = sum;
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = sums[0] + sums[1];
}

at::Tensor sum_rows_cuda(at::Tensor x) {
  TORCH_CHECK(x.device().type() == at::kCUDA, "x must be on a GPU");
  auto y = at::empty({x.size(0)}, x.options());
  at::cuda::CUDAStream stream = at::cuda::getStreamFromPool();
  c10::cuda::CUDAStreamGuard guard(stream);
  sum_rows<<<x.size(0), THREADS, 2 * sizeof(float), stream>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  AT_CUDA_CHECK(cudaStreamSynchronize(stream));
  return y;
}

// Atomics on PyTorch's types.
template <class T>
__global__ void count_kernel(const int64_t* index, T* counts, int64_t n) {
  CUDA_KERNEL_LOOP_TYPE(i, n, int64_t) gpuAtomicAdd(counts + index[i], static_cast<T>(1));
}

at::Tensor count_cuda(at::Tensor index, at::Tensor counts) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, counts.scalar_type(), "count", [&] {
    count_kernel<scalar_t><<<3, THREADS>>>(
        index.data_ptr<int64_t>(), counts.data_ptr<scalar_t>(), index.numel());
  });
  return counts;
}

// CUDA's half and PyTorch's: one becomes the other by itself, as with nvcc.
__global__ void twice_kernel(const __half* x, at::Half* y, int n) {
  const int i = threadIdx.x;
  if (i < n) y[i] = __hadd(x[i], x[i]);
}

at::Tensor twice_cuda(at::Tensor x) {
  auto y = at::empty_like(x);
  twice_kernel<<<1, THREADS>>>(
      reinterpret_cast<const __half*>(x.data_ptr<at::Half>()), y.data_ptr<at::Half>(), x.numel());
  return y;
}

// The seeds of a dropout.
__global__ void seed_kernel(at::PhiloxCudaState state, int64_t* seeds) {
  auto [seed, offset] = at::cuda::philox::unpack(state);
  seeds[0] = static_cast<int64_t>(seed >> 1) + static_cast<int64_t>(offset);
}

at::Tensor seed_cuda(std::optional<at::Generator> generator) {
  auto made = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      generator, at::cuda::detail::getDefaultCUDAGenerator());
  at::PhiloxCudaState state;
  {
    std::lock_guard<std::mutex> lock(made->mutex_);
    state = made->philox_cuda_state(4);
  }
  auto seeds = at::empty({1}, at::dtype(at::kLong).device(at::kCUDA));
  seed_kernel<<<1, 1>>>(state, seeds.data_ptr<int64_t>());
  return seeds;
}

// What goes wrong.
__global__ void fault_kernel(float* x, int kind) {
  if (kind == 0) x[threadIdx.x] = 1;
  if (kind == 1) asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" ::);
  if (kind == 2) CUDA_KERNEL_ASSERT(threadIdx.x < 3);
}

void fault_cuda(int64_t kind, int64_t threads) {
  fault_kernel<<<1, threads>>>(nullptr, kind);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
