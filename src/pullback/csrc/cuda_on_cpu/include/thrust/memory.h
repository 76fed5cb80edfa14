/// Part of thrust.
#pragma once

#include "../../thrust/memory.h"
