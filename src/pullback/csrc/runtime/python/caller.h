/// The Python type `Caller`: a callable that goes from Python straight to the dispatcher.
#pragma once

#include "python.h"

namespace pullback {

/// Makes the type; null with a Python error set if that fails.
PyObject* make_caller_type();

/// accelerate(class): calls of instances take the fast way, although the class has a `__call__`.
///
/// Dynamo reads that method and traces through it; a callable written in C alone it cannot trace.
PyObject* accelerate(PyObject* module, PyObject* type);

}  // namespace pullback
