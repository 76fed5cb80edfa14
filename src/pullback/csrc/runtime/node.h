/// The autograd node of every operator.
#pragma once

#include "operator.h"
#include "torch_version.h"
#include "zeros.h"

#include <torch/csrc/autograd/saved_variable.h>

namespace pullback {

class Node final : public torch::autograd::Node {
 public:
  explicit Node(const Definition& definition) : definition(definition) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override;
  void release_variables() override;
  std::string name() const override;

  const Definition& definition;       // never destroyed
  const Keeping* keeping = nullptr;   // of the definition, if the call kept what that says
  uint64_t tensors = 0, outputs = 0;  // what is saved: one bit an argument or output
  std::vector<torch::autograd::SavedVariable> saved;  // those tensors, then those outputs
  std::vector<c10::IValue> scalars;                   // all arguments but the tensors, if read
  std::unique_ptr<const Absent> absent;               // outputs that nobody asked for, if any
};

}  // namespace pullback
