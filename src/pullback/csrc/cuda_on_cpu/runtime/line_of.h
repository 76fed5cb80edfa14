/// From an address of code to the author's line. Slow (it asks addr2line): for reports only.
#pragma once

#include <string>
#include <vector>

namespace cuda_on_cpu {

/// The author's line that `pc`, a return address, belongs to, as "/folder/add.cu:12", or "".
/// (Of an instruction that faults, pass its address plus one.)
///
/// Where code is inlined, the innermost frame that is neither in this library's headers nor in the
/// system's.
std::string line_of(const void* pc);

/// The same of many addresses: addr2line reads each program or library once.
std::vector<std::string> lines_of(const std::vector<const void*>& pcs);

}  // namespace cuda_on_cpu
