/// Part of thrust.
#pragma once

#include "../../thrust/reduce.h"
