/// cuda::std: CUDA's copy of the C++ library for device code. Here it is the library itself.
#pragma once

#include <type_traits>

namespace cuda::std {
using namespace ::std;
}
