#include "matrices.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/addmm.h>

#include <algorithm>

namespace pullback {

// Below that its call takes longer, as in `bind/dense/matrices.py`.
constexpr int64_t least = 32, many = int64_t{1} << 21;

static bool is_large(const at::Tensor& a, const at::Tensor& b) {
  const int64_t rows = a.size(0), inner = a.size(1), columns = b.size(1);
  return std::min({rows, inner, columns}) >= least && rows * inner * columns >= many;
}

/// By the operation that `torch.compile` calls. Boxed: its C++ types are PyTorch's own affair.
static at::Tensor multiply_by_onednn(const at::Tensor& a, const at::Tensor& b) {
  static const c10::OperatorHandle linear =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "");
  at::Tensor weight = b.t();
  // It has fast loops for a second matrix without gaps alone.
  if (!b.is_contiguous()) weight = weight.contiguous();
  torch::jit::Stack stack;
  torch::jit::push(stack, a, weight, c10::IValue(), "none", c10::List<std::optional<at::Scalar>>(),
                   "");
  linear.callBoxed(stack);
  return stack.front().toTensor();
}

void multiply(const Target& target, const at::Tensor& a, const at::Tensor& b, bool by_onednn) {
  const auto& [to, adds, scale] = target;
  if (!by_onednn || !is_large(a, b)) {
    at::Tensor written = to;
    at::addmm_out(written, to, a, b, adds ? 1 : 0, scale);
    return;
  }
  const at::Tensor found = multiply_by_onednn(a, b);
  if (adds) {
    to.add_(found, scale);
  } else {
    to.copy_(found);
    if (scale != 1) to.mul_(scale);
  }
}

}  // namespace pullback
