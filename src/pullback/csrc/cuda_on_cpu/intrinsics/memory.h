/// Loads and stores with hints for a GPU's caches: plain ones here. Address spaces: there is one.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CUDA_ON_CPU_LOAD(name)  \
  template <class T>            \
  inline T name(const T* from) { \
    return *from;               \
  }
CUDA_ON_CPU_LOAD(__ldg)
CUDA_ON_CPU_LOAD(__ldca)
CUDA_ON_CPU_LOAD(__ldcg)
CUDA_ON_CPU_LOAD(__ldcs)
CUDA_ON_CPU_LOAD(__ldlu)
CUDA_ON_CPU_LOAD(__ldcv)
#undef CUDA_ON_CPU_LOAD

// The value converts to the pointer's type, as with CUDA's overloads.
#define CUDA_ON_CPU_STORE(name)       \
  template <class T, class V>         \
  inline void name(T* to, V value) { \
    *to = static_cast<T>(value);      \
  }
CUDA_ON_CPU_STORE(__stwb)
CUDA_ON_CPU_STORE(__stcg)
CUDA_ON_CPU_STORE(__stcs)
CUDA_ON_CPU_STORE(__stwt)
#undef CUDA_ON_CPU_STORE

inline unsigned __isGlobal(const void*) { return 1; }
inline unsigned __isShared(const void*) { return 1; }
inline unsigned __isConstant(const void*) { return 1; }
inline unsigned __isLocal(const void*) { return 1; }
inline unsigned __isGridConstant(const void*) { return 1; }
#define CUDA_ON_CPU_SPACE(space)                                         \
  inline size_t __cvta_generic_to_##space(const void* p) {               \
    return reinterpret_cast<uintptr_t>(p);                               \
  }                                                                      \
  inline void* __cvta_##space##_to_generic(size_t p) {                   \
    return reinterpret_cast<void*>(p);                                   \
  }
CUDA_ON_CPU_SPACE(global)
CUDA_ON_CPU_SPACE(shared)
CUDA_ON_CPU_SPACE(constant)
CUDA_ON_CPU_SPACE(local)
CUDA_ON_CPU_SPACE(grid_constant)
#undef CUDA_ON_CPU_SPACE

// Hints to nvcc, and to its profilers.
#define __builtin_assume(condition) \
  do {                              \
    if (!(condition)) __builtin_unreachable(); \
  } while (false)
#define __nv_ptx_builtin_ocg_nop()
inline void __prof_trigger(int) {}
