#ifdef CUDA_ON_CPU_RACE

#include "race.h"

#include <link.h>
#include <pthread.h>

#include "../core.h"
#include "race_detector.h"

namespace cuda_on_cpu::race {
namespace {

uintptr_t number(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

/// Where the launch was called: the OS thread, and the depth of its stack.
struct Launcher {
  pthread_t thread;
  uintptr_t frame;
};
Launcher launcher;
bool first_block;

Span stack_of_this_thread() {
  static thread_local Span stack;
  if (stack.high) return stack;
  pthread_attr_t attributes;
  void* low;
  size_t bytes;
  if (pthread_getattr_np(pthread_self(), &attributes)) return {};
  pthread_attr_getstack(&attributes, &low, &bytes);
  pthread_attr_destroy(&attributes);
  return stack = {number(low), number(low) + bytes};
}

/// thread_local variables, threadIdx among them, which the scheduler changes for each thread.
int add_thread_locals(dl_phdr_info* object, size_t, void*) {
  for (int i = 0; i < object->dlpi_phnum && object->dlpi_tls_data; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_TLS) continue;
    const uintptr_t low = number(object->dlpi_tls_data);
    detector().shadow().add_private_in_launch({low, low + segment.p_memsz});
  }
  return 0;
}

void add_private_of_this_thread() {
  Span stack = stack_of_this_thread();
  if (pthread_equal(launcher.thread, pthread_self())) stack.high = launcher.frame;
  detector().shadow().add_private_in_launch(stack);
  dl_iterate_phdr(add_thread_locals, nullptr);
}

}  // namespace

void launch_begins(const char* kernel, const char* file, int line, uint3 grid, uint3 block) {
  // Beyond the saved frame and the return address is the caller's frame.
  launcher = {pthread_self(), number(__builtin_frame_address(0)) + 2 * sizeof(void*)};
  first_block = true;
  running = nullptr;
  detector().launch_begins(kernel, file, line, grid, block);
}

void launch_ends() {
  const Report report = detector().launch_ends();
  running = nullptr;
  if (report.rule) stop(report.rule, "%s", report.text.c_str());
}

void launch_fails() { running = nullptr; }

void block_begins(uint64_t block, const char* shared, size_t bytes) {
  running = nullptr;
  detector().block_begins(block, {number(shared), number(shared) + bytes});
  if (first_block) add_private_of_this_thread();
  first_block = false;
}

void thread_runs(unsigned thread) { detector().thread_runs(thread); }
void no_thread_runs() { detector().no_thread_runs(); }
void thread_ends(unsigned thread) { detector().thread_ends(thread); }
void barrier(unsigned) { detector().barrier(); }
void barrier_at(const char* file, int line) { detector().findings().add_barrier(file, line); }
void collective(unsigned warp, uint32_t lanes) { detector().collective(warp, lanes); }

void fence() {
  if (running) running->fence();
}
void atomic(const void* address, unsigned size, const void* pc) {
  if (running) running->atomic(number(address), size, pc);
}

void private_memory(const char* low, const char* high) {
  detector().shadow().add_private({number(low), number(high)});
}
void fresh_memory(const void* low, size_t bytes) { detector().shadow().forget(number(low), bytes); }

const void* access_in_progress() { return detector().looking(); }

void shared_variable(const void* address, size_t bytes, const char* name) {
  detector().findings().name_shared(number(address), bytes, name);
}
void named_memory(const void* low, size_t bytes, const char* name) {
  detector().findings().name_argument(number(low), bytes, name);
}

}  // namespace cuda_on_cpu::race

#endif
