/// Part of thrust.
#pragma once

#include "../../thrust/algorithms.h"
