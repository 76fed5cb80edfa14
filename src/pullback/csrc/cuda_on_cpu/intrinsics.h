/// The intrinsic functions of CUDA's device code.
#pragma once

#include "intrinsics/bits.h"
#include "intrinsics/convert.h"
#include "intrinsics/dpx.h"
#include "intrinsics/fast.h"
#include "intrinsics/memory.h"
#include "intrinsics/rounding.h"
#include "intrinsics/video.h"

// The tables' macros, which several of these files use.
#undef CUDA_ON_CPU_ARITHMETIC
#undef CUDA_ON_CPU_ROUNDED
#undef CUDA_ON_CPU_LANES
#undef CUDA_ON_CPU_LANE
#undef CUDA_ON_CPU_SUM
#undef CUDA_ON_CPU_COMPARE
#undef CUDA_ON_CPU_VIDEO
#undef CUDA_ON_CPU_THREE
#undef CUDA_ON_CPU_TWO
#undef CUDA_ON_CPU_WRAPPED
#undef CUDA_ON_CPU_DPX
#undef CUDA_ON_CPU_DPX_RELU
#undef CUDA_ON_CPU_DPX_ALL
