/// Part of thrust.
#pragma once

#include "../../thrust/complex.h"
