/// Calls of an operator in index notation that are known: its loops, without a line of Python.
#pragma once

#include "python.h"

namespace pullback {

/// The type `Shortcuts`, for `bind/math/shortcuts.py`.
///
/// Shortcuts(counts): of one operator, whose int scalars at these places say how far an index runs.
/// add(arguments, call): adds all calls like one, whose arguments these are.
/// run(*arguments) -> its outputs, or None: it is not known, its tensors do not lie as
///   those of the first one, or a kernel has something to say.
PyObject* make_shortcuts_type();

}  // namespace pullback
