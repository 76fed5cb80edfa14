/// Names for which the CPU has nothing and there is no header: an error where an author uses one.
#pragma once

#define CUDA_ON_CPU_LACKS(what) \
  __attribute__((                \
      unavailable(what " do not run on the CPU; guard their use with #ifndef CUDA_ON_CPU")))

using cudaTextureObject_t CUDA_ON_CPU_LACKS("textures") = unsigned long long;
using cudaSurfaceObject_t CUDA_ON_CPU_LACKS("surfaces") = unsigned long long;
struct CUDA_ON_CPU_LACKS("textures") cudaTextureDesc {};
