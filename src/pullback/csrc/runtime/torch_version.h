/// Everything that differs between the PyTorch versions pullback supports (2.11 to 2.15).
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/headeronly/version.h>

#include <memory>

namespace pullback {

using AutogradNode = torch::autograd::Node;

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
// Before 2.13 a node is held by a shared_ptr.
template <class T>
using Owner = std::shared_ptr<T>;

template <class T, class... Args>
Owner<T> make_node(Args&&... args) {
  // deleteNode keeps the destruction of a long chain of nodes from overflowing the stack.
  return Owner<T>(new T(std::forward<Args>(args)...), torch::autograd::deleteNode);
}

inline Owner<AutogradNode> self(AutogradNode& node) { return node.getptr(); }
#else
template <class T>
using Owner = c10::intrusive_ptr<T>;

template <class T, class... Args>
Owner<T> make_node(Args&&... args) {
  return c10::make_intrusive<T>(std::forward<Args>(args)...);
}

inline Owner<AutogradNode> self(AutogradNode& node) {
  return Owner<AutogradNode>::unsafe_reclaim_from_nonowning(&node);
}
#endif

using NodePtr = Owner<AutogradNode>;

}  // namespace pullback
