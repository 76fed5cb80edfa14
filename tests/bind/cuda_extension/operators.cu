// The same kernels as operators: what of PyTorch's headers that takes is read in a few seconds.
#include <torch/library.h>

#include "kernels.cu"

std::vector<at::Tensor> lltm(const at::Tensor& gates, const at::Tensor& old_cell) {
  TORCH_CHECK(gates.is_cuda() && old_cell.is_cuda(), "both must be CUDA tensors");
  return lltm_cuda(gates, old_cell);
}

at::Tensor shift_cuda(const at::Tensor& x);  // in shift.cu

at::Tensor shift_cpu(const at::Tensor& x) { TORCH_CHECK(false, "not for the CPU"); }

TORCH_LIBRARY(cuda_extension, m) {
  m.def("lltm", &lltm);
  m.def("sum_rows", &sum_rows_cuda);
  m.def("count", &count_cuda);
  m.def("twice", &twice_cuda);
  m.def("seed(Generator? generator=None) -> Tensor", &seed_cuda);
  m.def("fault", &fault_cuda);
  m.def("shift(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(cuda_extension, CUDA, m) { m.impl("shift", TORCH_FN(shift_cuda)); }
TORCH_LIBRARY_IMPL(cuda_extension, CPU, m) { m.impl("shift", &shift_cpu); }
