/// Part of cub.
#pragma once

#include "../../cub/thread.h"
