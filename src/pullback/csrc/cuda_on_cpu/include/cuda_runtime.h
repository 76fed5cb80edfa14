/// Every translated file includes this first: CUDA's language, and its runtime API. Kept light,
/// since each edit of a kernel compiles it again.
#pragma once

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../core.h"
#include "../types.h"
#include "../launch.h"
#include "../sync.h"
#include "../warp.h"
#include "../shared.h"
#include "../atomics.h"
#include "../math.h"
#include "../intrinsics.h"
#include "../api.h"
#include "../lacking.h"
#include <assert.h>
