/// Part of cub.
#pragma once

#include "../../../cub/device/scan.h"
