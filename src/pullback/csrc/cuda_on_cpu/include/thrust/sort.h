/// Part of thrust.
#pragma once

#include "../../thrust/sort.h"
