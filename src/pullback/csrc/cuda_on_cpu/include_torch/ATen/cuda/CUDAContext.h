#pragma once

#include "../../../torch/context.h"
#include "Exceptions.h"
