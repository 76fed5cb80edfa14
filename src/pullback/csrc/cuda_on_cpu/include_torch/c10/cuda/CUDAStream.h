#pragma once

#include "../../../torch/stream.h"
