/// Part of thrust.
#pragma once

#include "../../thrust/functional.h"
