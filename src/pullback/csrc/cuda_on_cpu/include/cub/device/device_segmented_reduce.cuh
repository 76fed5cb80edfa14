/// Part of cub.
#pragma once

#include "../../../cub/device/reduce.h"
