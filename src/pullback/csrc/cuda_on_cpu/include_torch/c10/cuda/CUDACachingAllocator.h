#pragma once

#include "../../../torch/allocator.h"
