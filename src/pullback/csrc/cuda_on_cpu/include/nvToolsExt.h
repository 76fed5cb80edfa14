/// Marks for NVIDIA's profilers.
#pragma once

#include "nvtx3/nvToolsExt.h"
