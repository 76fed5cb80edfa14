/// Part of cub.
#pragma once

#include "../../../cub/warp_reduce.h"
