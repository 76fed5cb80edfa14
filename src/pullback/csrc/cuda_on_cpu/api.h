/// The part of the CUDA runtime API that operators use; it is implemented in runtime/api_*.cpp.
#pragma once

#include "api/device.h"
#include "api/error.h"
#include "api/function.h"
#include "api/graph.h"
#include "api/memory.h"
#include "api/stream.h"
#include "api/symbol.h"
