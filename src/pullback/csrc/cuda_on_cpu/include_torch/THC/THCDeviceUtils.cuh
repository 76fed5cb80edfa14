#pragma once

#include <ATen/cuda/DeviceUtils.cuh>

#include "THC.h"
