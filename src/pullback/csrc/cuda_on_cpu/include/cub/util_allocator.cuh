/// Part of cub.
#pragma once

#include "../../cub/allocator.h"
