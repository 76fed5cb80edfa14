/// Part of cub.
#pragma once

#include "../../cub/types.h"
