/// Part of cub.
#pragma once

#include "../../../cub/device/histogram.h"
