/// Cooperative groups.
#pragma once

#include "../groups.h"
