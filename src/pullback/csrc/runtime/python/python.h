/// The few symbols of libtorch_python that the module uses.
///
/// Declared here because PyTorch's headers for them include pybind11, which doubles the time of the
/// first use of pullback. They are the same in PyTorch 2.11 to 2.15.
#pragma once

#include <Python.h>

#include "../torch_version.h"

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

/// Takes the exception that is set, with its traceback.
inline PyObject* take_exception() {
#if PY_VERSION_HEX >= 0x030C0000
  return PyErr_GetRaisedException();
#else
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
#endif
}

/// Runs `body` with C++ exceptions turned into Python's, as PyTorch turns its own.
template <class Body>
PyObject* guarded(Body body) {
  try {
    return body();
  } catch (...) {
    if (!PyErr_Occurred()) torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

/// Lets other threads run Python, if this one holds the GIL.
class WithoutGil {
 public:
  WithoutGil() : state_(PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (state_) PyEval_RestoreThread(state_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

struct PyTensor {
  PyObject_HEAD
  at::Tensor tensor;
};

struct PyNode {
  PyObject_HEAD
  NodePtr node;
};

}  // namespace pullback
