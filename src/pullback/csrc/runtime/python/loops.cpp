#include "loops.h"

#include "../entry_order.h"
#include "../kernel.h"
#include "../threads.h"

#include <cstring>
#include <optional>
#include <stdexcept>

namespace pullback {

PyObject* require_tuple(PyObject* object) {
  if (!PyTuple_Check(object)) throw std::invalid_argument("pullback_runtime: a tuple was expected");
  return object;
}

const at::Tensor& require_tensor(PyObject* object) {
  if (PyObject_IsInstance(object, THPVariableClass) != 1) {
    throw std::invalid_argument("pullback_runtime: a tensor was expected");
  }
  return reinterpret_cast<PyTensor*>(object)->tensor;
}

Scalar scalar_of(PyObject* object) {
  Scalar scalar;
  if (PyFloat_Check(object)) {
    scalar.real = PyFloat_AS_DOUBLE(object);
  } else {
    scalar.integer = PyLong_AsLongLong(object);
  }
  return scalar;
}

namespace {

Ints numbers_in(PyObject* tuple) {
  Ints numbers;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple); ++k) {
    numbers.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, k)));
  }
  return numbers;
}

/// The arguments of a kernel, converted from Python's.
struct Arguments {
  c10::Device device = c10::kCPU;  // where the tensors are
  c10::SmallVector<char*, 8> data;
  c10::SmallVector<int64_t, 24> strides;
  Ints sizes;
  c10::SmallVector<Scalar, 4> scalars;

  Arguments(PyObject* tensors, PyObject* sizes, PyObject* scalars) {
    take_tensors(require_tuple(tensors));
    this->sizes = numbers_in(require_tuple(sizes));
    take_scalars(require_tuple(scalars));
  }
  IndexCall call() const { return {data.data(), strides.data(), sizes.data(), scalars.data()}; }

 private:
  void take_tensors(PyObject* tuple) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple); ++k) {
      const at::Tensor& tensor = require_tensor(PyTuple_GET_ITEM(tuple, k));
      device = tensor.device();
      data.push_back(static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())));
      const auto bytes = static_cast<int64_t>(tensor.element_size());
      for (const int64_t stride : tensor.strides()) strides.push_back(stride * bytes);
    }
  }
  void take_scalars(PyObject* tuple) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple); ++k) {
      scalars.push_back(scalar_of(PyTuple_GET_ITEM(tuple, k)));
    }
  }
};

}  // namespace

PyObject* parallel(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 6) throw std::invalid_argument("pullback_runtime: six arguments were expected");
    const auto kernel = reinterpret_cast<IndexKernel>(PyLong_AsVoidPtr(arguments[0]));
    const Arguments taken(arguments[1], arguments[2], arguments[3]);
    const int64_t tasks = PyLong_AsLongLong(arguments[4]), grain = PyLong_AsLongLong(arguments[5]);
    if (PyErr_Occurred()) return nullptr;
    int status = 0;
    {
      const WithoutGil without;
      status = run_tasks(kernel, taken.call(), tasks, grain);
    }
    if (status == Status::ok) Py_RETURN_NONE;
    return PyLong_FromLong(status);
  });
}

PyObject* py_order_entries(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 4) throw std::invalid_argument("pullback_runtime: four arguments were expected");
    const at::Tensor& places = require_tensor(arguments[0]);
    const int64_t many = PyLong_AsLongLong(arguments[1]), rows = PyLong_AsLongLong(arguments[3]);
    const Ints shape = numbers_in(require_tuple(arguments[2]));
    if (PyErr_Occurred()) return nullptr;
    at::Tensor order;
    {
      const WithoutGil without;
      order = order_entries(places, many, shape, rows);
    }
    return THPVariable_Wrap(order);
  });
}

PyObject* launch(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 6) throw std::invalid_argument("pullback_runtime: six arguments were expected");
    const auto launcher = reinterpret_cast<IndexLauncher>(PyLong_AsVoidPtr(arguments[0]));
    const Arguments taken(arguments[1], arguments[2], arguments[3]);
    IndexLaunch launch{taken.call(), PyLong_AsLongLong(arguments[4]),
                       PyLong_AsLongLong(arguments[5]), nullptr};
    if (PyErr_Occurred()) return nullptr;
    char message[4096];
    message[0] = '\0';
    int status = 0;
    {
      const WithoutGil without;
      std::optional<OnDevice> on;
      if (!taken.device.is_cpu()) launch.stream = on.emplace(taken.device).stream;
      status = launcher(&launch, message, sizeof message);
    }
    if (status == Status::ok) Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(message, static_cast<Py_ssize_t>(strlen(message)), "replace");
  });
}

}  // namespace pullback
