/// The Python type `Caller`: a callable that goes from Python straight to the dispatcher.
#pragma once

#include "python.h"

namespace pullback {

/// Makes the type; null with a Python error set if that fails.
PyObject* make_caller_type();

/// Whether an object is a tensor and no subclass of one, other than a parameter.
bool is_plain_tensor(PyObject* object);

/// accelerate(class): calls of instances take the fast path, although the class has a `__call__`.
///
/// Dynamo traces through that method; it cannot trace a callable that is written in C alone.
PyObject* accelerate(PyObject* module, PyObject* type);

}  // namespace pullback
