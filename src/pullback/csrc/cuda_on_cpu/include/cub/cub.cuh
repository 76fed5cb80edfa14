/// All of cub.
#pragma once

#include "../../cub/allocator.h"
#include "../../cub/block_exchange.h"
#include "../../cub/block_flags.h"
#include "../../cub/block_io.h"
#include "../../cub/block_raking.h"
#include "../../cub/block_reduce.h"
#include "../../cub/block_scan.h"
#include "../../cub/block_sort.h"
#include "../../cub/device/histogram.h"
#include "../../cub/device/reduce.h"
#include "../../cub/device/scan.h"
#include "../../cub/device/select.h"
#include "../../cub/device/sort.h"
#include "../../cub/warp_scan.h"
#include "../../cub/warp_sort.h"
