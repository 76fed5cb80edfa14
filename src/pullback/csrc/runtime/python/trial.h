/// Backwards are tried out by Python.
#pragma once

namespace pullback {

void try_in_python();

}  // namespace pullback
