/// Which kernels run, for handlers of signals: what ends the process, or does not return, has a name.
#pragma once

#include <pthread.h>

#include <atomic>

namespace pullback {

/// What one thread is in. Never freed, since a handler may look at it at any time, but used again.
struct Running {
  std::atomic<const char*> kernel{nullptr};  // the operator's name
  std::atomic<bool> taken{true};
  std::atomic<pthread_t> thread{pthread_self()};
  Running* next = nullptr;
};

inline std::atomic<Running*> every_running{nullptr};

/// Returns this thread's, which is given back when the thread ends.
inline Running& running_of_thread() {
  struct Lease {
    Lease() {
      for (Running* one = every_running.load(); one; one = one->next) {
        bool taken = false;
        if (!one->taken.compare_exchange_strong(taken, true)) continue;
        one->thread = pthread_self();
        running = one;
        return;
      }
      running = new Running;
      running->next = every_running.load();
      while (!every_running.compare_exchange_weak(running->next, running)) {
      }
    }
    ~Lease() { running->taken = false; }
    Running* running;
  };
  static thread_local Lease lease;
  return *lease.running;
}

/// Lasts as long as a kernel's call: two stores, which nobody waits for.
class InKernel {
 public:
  explicit InKernel(const char* name) : running_(running_of_thread()) {
    running_.kernel.store(name, std::memory_order_relaxed);
  }
  ~InKernel() { running_.kernel.store(nullptr, std::memory_order_relaxed); }
  InKernel(const InKernel&) = delete;

 private:
  Running& running_;
};

}  // namespace pullback
