/// Reading a definition from the fields that `bind/native.py` makes of it.
#pragma once

#include "python.h"

#include "../operator.h"

namespace pullback {

/// Throws std::invalid_argument if they are not those that `definition_fields` gives.
Definition read_definition(PyObject* dictionary);

}  // namespace pullback
