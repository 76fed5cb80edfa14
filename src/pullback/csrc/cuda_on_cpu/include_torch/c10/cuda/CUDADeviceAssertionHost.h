#pragma once

#include "../../../torch/assert.h"
#include "../../../torch/check.h"
