/// Part of cub.
#pragma once

#include "../../../cub/device/sort.h"
