#pragma once

#include_next <torch/headeronly/macros/Macros.h>

#include "../../../../torch/assert.h"
