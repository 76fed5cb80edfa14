/// Backwards are tested in Python.
#pragma once

namespace pullback {

void try_in_python();

}  // namespace pullback
