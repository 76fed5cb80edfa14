/// Part of thrust.
#pragma once

#include "../../../../../thrust/policy.h"
