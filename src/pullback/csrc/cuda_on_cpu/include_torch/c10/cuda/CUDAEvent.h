#pragma once

#include "../../../torch/event.h"
