#pragma once

#include "../../torch/atomic.h"
