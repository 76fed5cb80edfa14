/// Part of cub.
#pragma once

#include "../../../cub/block_reduce.h"
