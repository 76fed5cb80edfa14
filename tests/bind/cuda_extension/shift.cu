// What operators.cu registers with TORCH_FN, of which it has the declaration alone.
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDABlas.h>
#include <ATen/ops/empty_like.h>

__global__ void shift_kernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}

at::Tensor shift_cuda(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  const auto handle = at::cuda::getCurrentCUDABlasHandle();
  TORCH_CUDABLAS_CHECK(cublasSetStream(handle, at::cuda::getCurrentCUDAStream()));
  shift_kernel<<<2, 32>>>(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), x.numel());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
