/// Calls of an operator in index notation that are known: kernels, without a line of Python.
#pragma once

#include "python.h"

#include "../operator.h"

namespace pullback {

/// The type `Shortcuts`, for `bind/math/shortcuts.py`.
///
/// Shortcuts(counts): of one operator, whose int scalars at these places say how far an index runs.
/// add(arguments, call): adds all calls like one, whose arguments these are.
/// clear(): forgets them.
PyObject* make_shortcuts_type();

/// Returns what such an object holds, for a definition: it makes the calls that are known.
std::shared_ptr<const Computation> shortcuts_in(PyObject* object);

}  // namespace pullback
