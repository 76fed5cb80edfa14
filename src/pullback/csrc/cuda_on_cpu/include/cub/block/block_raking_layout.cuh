/// Part of cub.
#pragma once

#include "../../../cub/block_raking.h"
