/// Running generated loops over indices, for `bind/loops`.
#pragma once

#include "../../kernel_abi.h"
#include "python.h"

namespace pullback {

/// Python's arguments, converted; an exception for what is of another type.
PyObject* require_tuple(PyObject* object);
const at::Tensor& require_tensor(PyObject* object);
Scalar scalar_of(PyObject* object);

/// parallel(address, tensors, sizes, scalars, count, grain) -> None, or what the kernel returned.
///
/// The kernel is an `IndexKernel` and works on tasks from 0 up to `count`, at least `grain` of them
/// at a time, which PyTorch's threads share. Python may run meanwhile.
PyObject* parallel(PyObject*, PyObject* const* arguments, Py_ssize_t count);

/// launch(address, tensors, sizes, scalars, tasks, scratch) -> None, or what went wrong.
///
/// The address is of an `IndexLauncher`; the tensors are on one GPU, whose current stream it uses,
/// or on the CPU, where CUDA runs on the CPU.
PyObject* launch(PyObject*, PyObject* const* arguments, Py_ssize_t count);

/// order_entries(places, many, shape, rows) -> their order, as entry_order.h says.
PyObject* py_order_entries(PyObject*, PyObject* const* arguments, Py_ssize_t count);

}  // namespace pullback
