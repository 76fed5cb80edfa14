/// Part of cub.
#pragma once

#include "../../../cub/iterators.h"
