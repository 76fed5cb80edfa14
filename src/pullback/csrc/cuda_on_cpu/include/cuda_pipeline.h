/// Asynchronous copies into shared memory: done at once, which a kernel that waits for them allows.
#pragma once

#include "cuda_pipeline_primitives.h"
