/// Shared memory: variables and the dynamic part are in an arena, which is fresh for each block.
#pragma once

#include "core.h"

namespace cuda_on_cpu {

#pragma GCC visibility push(default)
/// A number for each declaration of a `__shared__` variable.
int new_shared_slot();
/// The address of this block's variable of that number.
void* shared_slot(int slot, size_t bytes, size_t alignment, const char* name);
/// The dynamic shared memory of the block: the third value between <<< and >>>.
void* cuda_on_cpu_dynamic();
/// Keeps a variable at namespace scope pointed at the dynamic shared memory of the running block.
bool cuda_on_cpu_dynamic_at(void (*set)(void* memory));
#pragma GCC visibility pop

/// `Tag` is the type of a lambda: one for each declaration, and for each instantiation of its
/// function. The race detector must not see how the number is made.
template <class T, size_t alignment = alignof(T), class Tag>
[[gnu::no_sanitize("thread")]] inline T& cuda_on_cpu_shared(Tag, const char* name) {
  static const int slot = new_shared_slot();
  return *static_cast<T*>(shared_slot(slot, sizeof(T), alignment, name));
}

}  // namespace cuda_on_cpu
