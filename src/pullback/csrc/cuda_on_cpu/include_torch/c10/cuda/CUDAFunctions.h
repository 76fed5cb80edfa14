#pragma once

#include "../../../torch/device.h"
