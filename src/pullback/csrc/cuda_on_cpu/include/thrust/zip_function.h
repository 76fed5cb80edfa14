/// Part of thrust.
#pragma once

#include "../../thrust/iterators.h"
