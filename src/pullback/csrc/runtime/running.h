/// Which kernels are running, for signal handlers: they can name the one that ends the process or
/// does not return.
#pragma once

#include <pthread.h>

#include <atomic>

namespace pullback {

/// The kernel that one thread is in. Reused but never freed, since a handler may read it at any
/// time.
struct Running {
  std::atomic<const char*> kernel{nullptr};  // the operator's name
  std::atomic<bool> taken{true};
  std::atomic<pthread_t> thread{pthread_self()};
  Running* next = nullptr;
};

inline std::atomic<Running*> every_running{nullptr};

/// Returns this thread's; it is released when the thread ends.
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

/// Lives as long as a kernel's call: two relaxed stores.
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
