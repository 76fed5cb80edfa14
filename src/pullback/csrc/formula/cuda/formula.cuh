/// Everything that a generated formula includes for a GPU, before its `Body`; `kernels.cuh` follows
/// it.
#pragma once

#include "loop.cuh"
#include "special.cuh"
