/// Cooperative groups: the block, tiles of a warp, the lanes that happen to be together; and what
/// groups do together. Groups of several blocks can be asked for their sizes, and not waited for.
#pragma once

#include "groups/algorithms.h"
#include "groups/block.h"
#include "groups/copy.h"
#include "groups/grid.h"
#include "groups/lanes.h"
#include "groups/partition.h"

/// NVIDIA's own namespace for what is behind them, which some code names.
namespace cooperative_groups::details {
using namespace ::cooperative_groups;
}
