/// The launch of a kernel, and the loop over the threads of a block.
#pragma once

#include "core.h"

/// At the head of a kernel's body. Constants, so that the compiler sees through the index
/// arithmetic.
#define CUDA_ON_CPU_KERNEL                                                      \
  [[maybe_unused]] const uint3 threadIdx = ::cuda_on_cpu::indices(::threadIdx); \
  [[maybe_unused]] const uint3 blockIdx = ::cuda_on_cpu::indices(::blockIdx);   \
  [[maybe_unused]] const dim3 blockDim = ::cuda_on_cpu::indices(::blockDim);    \
  [[maybe_unused]] const dim3 gridDim = ::cuda_on_cpu::indices(::gridDim);

namespace cuda_on_cpu {

/// The threads to run: a box of thread indices within the block.
struct Span {
  unsigned x0, x1, y0, y1, z0, z1;
};

/// Reads or writes the index variables as `Word`s (see there).
template <class Indices>
[[gnu::always_inline]] inline uint3 indices(const Indices& from) {
  return {unsigned(reinterpret_cast<const Word&>(from.x)),
          unsigned(reinterpret_cast<const Word&>(from.y)),
          unsigned(reinterpret_cast<const Word&>(from.z))};
}
[[gnu::always_inline]] inline void set_index(unsigned& to, unsigned value) {
  reinterpret_cast<Word&>(to) = Word(value);
}

/// `threadIdx.x` while it is not known: so the compiler may drop stores that nobody reads.
constexpr unsigned no_index = ~0u;

/// The parameters of one launch. `run` runs the threads of a span with `call`, the bound kernel.
struct Launch {
  void (*run)(const void* call, const Span& span, bool fast);
  const void* call;
  const char* name;
  Place place;
  dim3 grid, block;
  size_t shared;
};

#pragma GCC visibility push(default)
/// Whether a GPU would take these sizes; sets last_error() if not.
bool can_launch(const dim3& grid, const dim3& block, size_t shared);
/// Runs the launch to its end; throws what its threads raise.
void launch(const Launch& launch);
/// Sets threadIdx; out of line, since the race detector would take it for a write of the kernel's.
void set_thread(unsigned x, unsigned y, unsigned z);
#pragma GCC visibility pop

/// The threads of one row of a span, one after the other, until one of them has had to wait.
///
/// Counted by the index over the whole grid, in int: an author's `blockIdx.x * blockDim.x +
/// threadIdx.x` folds to the counter, which is known not to overflow, and the loop vectorises.
template <class Call>
[[gnu::always_inline]] inline void run_row(Call& call, unsigned x0, unsigned x1) {
  const unsigned first = indices(blockIdx).x * indices(blockDim).x;
  if (first > 0x7fffffffu - 1024) __builtin_unreachable();
  if (x1 > 1024) __builtin_unreachable();
  const int end = int(first + x1);
  for (int i = int(first + x0); i < end; ++i) {
    set_index(threadIdx.x, unsigned(i) - first);
    call();
    if (loop_is_over != Word(0)) break;
  }
  // This makes the stores above dead where nobody reads them, and the compiler drops them.
  set_index(threadIdx.x, no_index);
}

/// The same, one by one: where the index over the grid may not fit an int, and for fibers. Cold,
/// so that the kernel is called here, and not inlined and optimised a second time.
template <class Call>
[[gnu::cold, gnu::noinline]] void run_each(const void* bound, const Span& s) {
  Call call = *static_cast<const Call*>(bound);
  for (unsigned z = s.z0; z < s.z1; ++z) {
    for (unsigned y = s.y0; y < s.y1; ++y) {
      for (unsigned x = s.x0; x < s.x1; ++x) {
        set_thread(x, y, z);
        call();
        if (loop_is_over != Word(0)) return;
      }
    }
  }
}

template <class Call>
void run(const void* bound, const Span& span, bool fast) {
  if (!fast) return run_each<Call>(bound, span);
  Call call = *static_cast<const Call*>(bound);  // a copy that nobody else can reach
  const Span s = span;
  for (unsigned z = s.z0; z < s.z1; ++z) {
    for (unsigned y = s.y0; y < s.y1; ++y) {
      set_index(threadIdx.y, y);
      set_index(threadIdx.z, z);
      run_row(call, s.x0, s.x1);
      if (loop_is_over != Word(0)) return;
    }
  }
}

/// A kernel with its name and the line that launches it:
/// `cuda_on_cpu_kernel(f, "f").cuda_on_cpu_configure(g, b)(args)`. The translator writes names that
/// no author's macro, and no macro's parameter, has.
template <class F>
class Kernel {
 public:
  Kernel(F f, const char* name, Place place) : f_(f), name_(name), place_(place) {}

  /// `stream` is accepted and ignored: a launch returns when it is done.
  template <class... Stream>
  Kernel& cuda_on_cpu_configure(dim3 grid, dim3 block, size_t shared = 0, const Stream&...) {
    grid_ = grid, block_ = block, shared_ = shared;
    return *this;
  }

  template <class... Arguments>
  void operator()(Arguments... arguments) {
    if (!can_launch(grid_, block_, shared_)) return;
    auto call = [f = f_, ... a = arguments]() mutable { f(a...); };
    using Call = decltype(call);
    launch({run<Call>, &call, name_, place_, grid_, block_, shared_});
  }

 private:
  F f_;
  const char* name_;
  Place place_;
  dim3 grid_, block_;
  size_t shared_ = 0;
};

template <class F>
Kernel<F> cuda_on_cpu_kernel(F f, const char* name, CUDA_ON_CPU_PLACE) {
  return {f, name, CUDA_ON_CPU_HERE};
}

}  // namespace cuda_on_cpu
