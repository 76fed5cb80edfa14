#pragma once

#include "../../../torch/guard.h"
