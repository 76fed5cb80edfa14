/// cudaProfilerStart and cudaProfilerStop, which do nothing.
#pragma once

#include "../include/cuda_runtime.h"
