/// Part of thrust.
#pragma once

#include "../../../thrust/random.h"
