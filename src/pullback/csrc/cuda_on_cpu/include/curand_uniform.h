/// Random numbers in kernels.
#pragma once

#include "../random.h"
