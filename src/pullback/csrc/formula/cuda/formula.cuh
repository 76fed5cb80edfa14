/// All that a generated formula includes for a GPU, before its `Body`; `kernels.cuh` comes after it.
#pragma once

#include "loop.cuh"
#include "special.cuh"
