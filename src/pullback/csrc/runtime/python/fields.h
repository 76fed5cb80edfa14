/// Reading a definition from the tuple that `bind/native.py` makes of it.
#pragma once

#include "python.h"

#include "../operator.h"

namespace pullback {

/// Throws std::invalid_argument if the tuple is not of the form that `definition_fields` gives.
Definition read_definition(PyObject* tuple);

}  // namespace pullback
