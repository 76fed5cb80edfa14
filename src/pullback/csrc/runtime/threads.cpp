#include "threads.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/from_blob.h>

#include <atomic>

namespace pullback {

// TensorIterator divides the work: `at::parallel_for` is a template that would have to be compiled for
// the thread library that PyTorch was built with.
int share_tasks(const std::function<int(int64_t, int64_t)>& work, int64_t count, int64_t grain) {
  if (count <= grain || at::get_num_threads() == 1 || at::in_parallel_region()) {
    return work(0, count);
  }
  std::atomic<int> status{0};
  // A tensor of bytes that nobody touches: where a thread's part begins says which tasks it has.
  alignas(64) static char nothing[64];
  char* const first = nothing;
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false);
  config.add_owned_output(at::from_blob(first, {count}, at::TensorOptions().dtype(at::kByte)));
  at::TensorIterator iterator = config.build();
  iterator.for_each(
      [&](char** data, const int64_t*, int64_t n) {
        const int64_t begin = data[0] - first;
        status |= work(begin, begin + n);
      },
      grain);
  return status;
}

int run_tasks(IndexKernel kernel, const IndexCall& call, int64_t count, int64_t grain) {
  return share_tasks([&](int64_t begin, int64_t end) { return kernel(&call, begin, end); }, count,
                     grain);
}

}  // namespace pullback
