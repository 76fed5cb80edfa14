#pragma once

#include "../../../torch/context.h"
