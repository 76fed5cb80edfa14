/// Running a kernel over tasks that PyTorch's threads share.
#pragma once

#include "python.h"

namespace pullback {

/// parallel(address, tensors, sizes, scalars, count, grain) -> what the kernel returned.
///
/// The kernel takes a `Call` of csrc/index/index.h and works on tasks from 0 up to `count`, at least
/// `grain` of them at a time. Python may run meanwhile.
PyObject* parallel(PyObject*, PyObject* const* arguments, Py_ssize_t count);

}  // namespace pullback
