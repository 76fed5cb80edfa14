/// Passes over blocks of rows and columns, for `bind/loops/passes.py`.
#pragma once

#include "python.h"

namespace pullback {

/// sweep(program, tensors, scalars) -> None, or what a kernel returned.
///
/// `program` is a tuple of whole numbers, which `Program` reads in the order of its members. Python
/// may run meanwhile.
PyObject* sweep(PyObject*, PyObject* const* arguments, Py_ssize_t count);

}  // namespace pullback
