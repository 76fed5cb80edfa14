#pragma once

#include <ATen/NumericUtils.h>
#include <ATen/cuda/NumericLimits.cuh>
