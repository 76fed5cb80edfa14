#pragma once

// PyTorch generates this when it is built for CUDA; nothing in it is needed here.
