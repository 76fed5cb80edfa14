/// Part of cub.
#pragma once

#include "../../../cub/device/select.h"
