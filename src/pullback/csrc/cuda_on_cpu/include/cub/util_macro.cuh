/// Part of cub.
#pragma once

#include "../../cub/config.h"
