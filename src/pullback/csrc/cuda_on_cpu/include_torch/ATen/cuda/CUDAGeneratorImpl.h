#pragma once

#include "../../../torch/random.h"
