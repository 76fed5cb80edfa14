#pragma once

#include "../../../torch/context.h"
#include "../../../torch/event.h"

namespace at::cuda {
using c10::cuda::CUDAEvent;
}
