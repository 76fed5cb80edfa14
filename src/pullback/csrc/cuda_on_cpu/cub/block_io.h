/// BlockLoad, BlockStore and their forms for warps. On a GPU the algorithms differ only in speed; a
/// thread gets other items only if they are striped.
#pragma once

#include "block_exchange.h"
#include "iterators.h"

CUB_NAMESPACE_BEGIN

enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT,
  BLOCK_LOAD_STRIPED,
  BLOCK_LOAD_VECTORIZE,
  BLOCK_LOAD_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT,
  BLOCK_STORE_STRIPED,
  BLOCK_STORE_VECTORIZE,
  BLOCK_STORE_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};
enum WarpLoadAlgorithm {
  WARP_LOAD_DIRECT,
  WARP_LOAD_STRIPED,
  WARP_LOAD_VECTORIZE,
  WARP_LOAD_TRANSPOSE
};
enum WarpStoreAlgorithm {
  WARP_STORE_DIRECT,
  WARP_STORE_STRIPED,
  WARP_STORE_VECTORIZE,
  WARP_STORE_TRANSPOSE
};

// Free functions for one thread's items: blocked, or striped over `threads`.
template <class T, int items, class Iterator>
void LoadDirectBlocked(int thread, Iterator from, T (&out)[items]) {
  for (int i = 0; i < items; ++i) out[i] = from[thread * items + i];
}
template <class T, int items, class Iterator>
void LoadDirectBlocked(int thread, Iterator from, T (&out)[items], int valid) {
  for (int i = 0; i < items; ++i) {
    if (thread * items + i < valid) out[i] = from[thread * items + i];
  }
}
template <class T, class Default, int items, class Iterator>
void LoadDirectBlocked(int thread, Iterator from, T (&out)[items], int valid, Default other) {
  for (int i = 0; i < items; ++i) out[i] = other;
  LoadDirectBlocked(thread, from, out, valid);
}
template <class T, int items>
void LoadDirectBlockedVectorized(int thread, T* from, T (&out)[items]) {
  LoadDirectBlocked(thread, from, out);
}
template <int threads, class T, int items, class Iterator>
void LoadDirectStriped(int thread, Iterator from, T (&out)[items]) {
  for (int i = 0; i < items; ++i) out[i] = from[thread + i * threads];
}
template <int threads, class T, int items, class Iterator>
void LoadDirectStriped(int thread, Iterator from, T (&out)[items], int valid) {
  for (int i = 0; i < items; ++i) {
    if (thread + i * threads < valid) out[i] = from[thread + i * threads];
  }
}
template <int threads, class T, class Default, int items, class Iterator>
void LoadDirectStriped(int thread, Iterator from, T (&out)[items], int valid, Default other) {
  for (int i = 0; i < items; ++i) out[i] = other;
  LoadDirectStriped<threads>(thread, from, out, valid);
}
template <class T, int items, class Iterator>
void StoreDirectBlocked(int thread, Iterator to, T (&in)[items]) {
  for (int i = 0; i < items; ++i) to[thread * items + i] = in[i];
}
template <class T, int items, class Iterator>
void StoreDirectBlocked(int thread, Iterator to, T (&in)[items], int valid) {
  for (int i = 0; i < items; ++i) {
    if (thread * items + i < valid) to[thread * items + i] = in[i];
  }
}
template <class T, int items>
void StoreDirectBlockedVectorized(int thread, T* to, T (&in)[items]) {
  StoreDirectBlocked(thread, to, in);
}
template <int threads, class T, int items, class Iterator>
void StoreDirectStriped(int thread, Iterator to, T (&in)[items]) {
  for (int i = 0; i < items; ++i) to[thread + i * threads] = in[i];
}
template <int threads, class T, int items, class Iterator>
void StoreDirectStriped(int thread, Iterator to, T (&in)[items], int valid) {
  for (int i = 0; i < items; ++i) {
    if (thread + i * threads < valid) to[thread + i * threads] = in[i];
  }
}

CUB_NAMESPACE_END

namespace cuda_on_cpu {

struct NoStorage {
  struct alignas(16) TempStorage {};
};

template <int threads, bool striped>
class Loads {
 protected:
  explicit Loads(int thread) : thread(thread) {}

 public:
  template <class T, int items, class Iterator, class... A>
  void Load(Iterator from, T (&out)[items], A... valid_and_default) {
    if constexpr (striped) {
      CUB_NS_QUALIFIER::LoadDirectStriped<threads>(thread, from, out, valid_and_default...);
    } else {
      CUB_NS_QUALIFIER::LoadDirectBlocked(thread, from, out, valid_and_default...);
    }
  }

 private:
  int thread;
};
template <int threads, bool striped>
class Stores {
 protected:
  explicit Stores(int thread) : thread(thread) {}

 public:
  template <class T, int items, class Iterator, class... A>
  void Store(Iterator to, T (&in)[items], A... valid) {
    if constexpr (striped) {
      CUB_NS_QUALIFIER::StoreDirectStriped<threads>(thread, to, in, valid...);
    } else {
      CUB_NS_QUALIFIER::StoreDirectBlocked(thread, to, in, valid...);
    }
  }

 private:
  int thread;
};

}  // namespace cuda_on_cpu

CUB_NAMESPACE_BEGIN

#define CUDA_ON_CPU_BLOCK_IO(Class, Base, Algorithm, direct, striped)                      \
  template <class T, int x, int items, Algorithm algorithm = direct, int y = 1, int z = 1, \
            int = 0>                                                                       \
  class Class : public ::cuda_on_cpu::NoStorage,                                           \
                public ::cuda_on_cpu::Base<x * y * z, algorithm == striped> {              \
   public:                                                                                 \
    Class() : Class::Base(RowMajorTid(x, y, z)) {}                                         \
    explicit Class(::cuda_on_cpu::NoStorage::TempStorage&) : Class() {}                    \
  };
#define CUDA_ON_CPU_WARP_IO(Class, Base, Algorithm, direct, striped)                           \
  template <class T, int items, Algorithm algorithm = direct, int size = 32, int = 0>          \
  class Class : public ::cuda_on_cpu::NoStorage,                                               \
                public ::cuda_on_cpu::Base<size, algorithm == striped> {                       \
   public:                                                                                     \
    Class() : Class::Base(static_cast<int>(LaneId()) % size) {}                                \
    explicit Class(::cuda_on_cpu::NoStorage::TempStorage&) : Class() {}                        \
  };
CUDA_ON_CPU_BLOCK_IO(BlockLoad, Loads, BlockLoadAlgorithm, BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED)
CUDA_ON_CPU_BLOCK_IO(BlockStore, Stores, BlockStoreAlgorithm, BLOCK_STORE_DIRECT,
                     BLOCK_STORE_STRIPED)
CUDA_ON_CPU_WARP_IO(WarpLoad, Loads, WarpLoadAlgorithm, WARP_LOAD_DIRECT, WARP_LOAD_STRIPED)
CUDA_ON_CPU_WARP_IO(WarpStore, Stores, WarpStoreAlgorithm, WARP_STORE_DIRECT, WARP_STORE_STRIPED)
#undef CUDA_ON_CPU_BLOCK_IO
#undef CUDA_ON_CPU_WARP_IO

CUB_NAMESPACE_END
