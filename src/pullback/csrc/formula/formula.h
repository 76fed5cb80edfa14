/// Everything that a generated formula includes.
#pragma once

#include "loop.h"
#include "polygamma.h"
