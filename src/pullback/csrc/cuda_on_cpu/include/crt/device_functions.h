/// All of the runtime is in one header here.
#pragma once

#include "../../include/cuda_runtime.h"
