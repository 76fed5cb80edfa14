/// Cooperative groups: the block, tiles of a warp, the lanes that happen to be converged; and their
/// collective operations. Groups of several blocks know their sizes, but cannot synchronise.
#pragma once

#include "groups/algorithms.h"
#include "groups/block.h"
#include "groups/copy.h"
#include "groups/grid.h"
#include "groups/lanes.h"
#include "groups/partition.h"

/// NVIDIA's internal namespace, which some code names.
namespace cooperative_groups::details {
using namespace ::cooperative_groups;
}
