/// cuda::atomic and cuda::atomic_ref: the C++ library's, in any scope. The scheduler does not
/// notice a thread that spins on one; it does with atomicAdd and the like.
#pragma once

#include <atomic>

#include "standard.h"

namespace cuda {

enum thread_scope {
  thread_scope_system,
  thread_scope_device,
  thread_scope_block,
  thread_scope_thread
};

template <class T, thread_scope = thread_scope_system>
struct atomic : ::std::atomic<T> {
  using ::std::atomic<T>::atomic;
  using ::std::atomic<T>::operator=;
};
#if defined(__cpp_lib_atomic_ref)
template <class T, thread_scope = thread_scope_system>
struct atomic_ref : ::std::atomic_ref<T> {
  using ::std::atomic_ref<T>::atomic_ref;
  using ::std::atomic_ref<T>::operator=;
};
#endif
using ::std::memory_order;
using ::std::memory_order_acq_rel;
using ::std::memory_order_acquire;
using ::std::memory_order_relaxed;
using ::std::memory_order_release;
using ::std::memory_order_seq_cst;

}  // namespace cuda
