/// __half and __half2.
#pragma once

#include "../half.h"
