/// The driver's profiler calls.
#pragma once

#include "../include/cuda.h"
