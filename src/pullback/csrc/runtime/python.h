/// The few names of libtorch_python that the module uses.
///
/// Declared here because PyTorch's headers for them bring in pybind11, which doubles the time that
/// the first use of pullback takes. They are the same in PyTorch 2.11 to 2.15.
#pragma once

#include <Python.h>

#include "torch_version.h"

#include <ATen/core/Tensor.h>

#include <exception>

extern PyObject* THPVariableClass;
PyObject* THPVariable_Wrap(const at::TensorBase& tensor);

namespace torch {
void translate_exception_to_python(const std::exception_ptr& exception);
namespace autograd {
bool THPCppFunction_Check(PyObject* object);
}
}  // namespace torch

namespace pullback {

struct PyTensor {
  PyObject_HEAD
  at::Tensor tensor;
};

struct PyNode {
  PyObject_HEAD
  NodePtr node;
};

}  // namespace pullback
