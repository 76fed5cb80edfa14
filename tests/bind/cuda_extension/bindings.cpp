#include <torch/extension.h>

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")

#ifdef __CUDACC__
#error "bindings are C++, in which nvcc leaves CUDA out"
#endif

std::vector<torch::Tensor> lltm_cuda(torch::Tensor gates, torch::Tensor old_cell);
torch::Tensor sum_rows_cuda(torch::Tensor x);
torch::Tensor count_cuda(torch::Tensor index, torch::Tensor counts);
torch::Tensor twice_cuda(torch::Tensor x);
torch::Tensor seed_cuda(std::optional<at::Generator> generator);
void fault_cuda(int64_t kind, int64_t threads);

std::vector<torch::Tensor> lltm(torch::Tensor gates, torch::Tensor old_cell) {
  CHECK_CUDA(gates);
  CHECK_CONTIGUOUS(gates);
  CHECK_CUDA(old_cell);
  return lltm_cuda(gates, old_cell);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("lltm", &lltm);
  m.def("sum_rows", &sum_rows_cuda);
  m.def("count", &count_cuda);
  m.def("twice", &twice_cuda);
  m.def("seed", &seed_cuda, py::arg("generator") = py::none());
  m.def("fault", &fault_cuda);
}
