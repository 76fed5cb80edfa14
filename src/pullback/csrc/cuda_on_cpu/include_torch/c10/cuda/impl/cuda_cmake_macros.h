#pragma once

// PyTorch makes it when it is built for CUDA; it has nothing that is wanted here.
