#include "signals.h"

#include "schedule.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <iterator>

namespace cuda_on_cpu::signals {

const int break_off = SIGURG;  // ignored without a handler, so a late one does no harm

namespace {

constexpr int handled[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, break_off};
constexpr size_t signal_stack_bytes = 64 << 10;

/// The handlers that we found whenever we installed ours, the latest last. One is not enough:
/// another runtime of this kind passes a signal on to us, and we must then call the handler before
/// it.
class Others {
 public:
  void found(const struct sigaction& other) {
    const auto same = [&](const struct sigaction& one) {
      return one.sa_sigaction == other.sa_sigaction;
    };
    auto end = std::remove_if(kept_, kept_ + count_, same);
    if (end == std::end(kept_)) end = std::move(kept_ + 1, end, kept_);
    *end = other;
    count_ = static_cast<unsigned>(end + 1 - kept_);
  }
  /// The handler to call when a signal has come back to us so often: each time one found earlier,
  /// and then the first again, which may be a runtime that knows further ones. Null: no more.
  const struct sigaction* after(unsigned returns) const {
    if (count_ == 0 || returns > 2 * std::size(kept_)) return nullptr;
    return &kept_[count_ - 1 - std::min(returns, count_ - 1)];
  }

 private:
  struct sigaction kept_[8];
  unsigned count_ = 0;
};

Others others[NSIG];
std::mutex mutex;
std::atomic<uint64_t> looked;
__thread bool has_stack;
__thread void* own_stack;
__thread unsigned passed_on;  // how often the current signal was passed on

const void* code_of(const ucontext_t& context) {
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(context.uc_mcontext.pc);
#else
  return nullptr;
#endif
}

bool was_write(const ucontext_t& context) {
#if defined(__x86_64__)
  return context.uc_mcontext.gregs[REG_ERR] & 2;
#else
  return false;
#endif
}

/// Notes the place in the author's code, or the author's call of the library that `code` is in.
void note_code(const Job& job, const char* code, const void* (&noted)[4]) {
#ifdef CUDA_ON_CPU_RACE
  if (const void* access = race::access_in_progress()) {
    noted[0] = access;
    return;
  }
#endif
  noted[0] = code + 1;  // as if it were a return address
  Dl_info here, kernel;
  const bool of_kernel = ::dladdr(code, &here) &&
                         ::dladdr(reinterpret_cast<void*>(job.launch.run), &kernel) &&
                         here.dli_fbase == kernel.dli_fbase;
  find_author_code(job, noted + of_kernel, 4 - of_kernel);
}

/// The operating system resets the floating-point control words for a handler: restores them.
void restore_control_words([[maybe_unused]] const ucontext_t& context) {
#if defined(__x86_64__)
  if (context.uc_mcontext.fpregs) __builtin_ia32_ldmxcsr(context.uc_mcontext.fpregs->mxcsr);
#endif
}

/// Whether a launch may be interrupted at this code. Not in a library, which may hold a lock or be
/// half done: then it is interrupted a little later.
bool is_interruptible(const Worker& worker, const void* code) {
  const Job& job = *worker.job;
  const auto at = reinterpret_cast<uintptr_t>(code);
  return at >= job.code_low && at < job.code_high;
}

/// Whether it was sent by kill() or the like, not raised by an instruction.
bool is_sent(const siginfo_t& info) { return info.si_code <= 0; }

/// Does what would have happened without us.
void pass_on(int number, siginfo_t* info, void* context) {
  const struct sigaction* const other = others[number].after(passed_on);
  const bool ignored = other && other->sa_handler == SIG_IGN;
  const bool by_default = !other || ignored || other->sa_handler == SIG_DFL;
  if (number == break_off && by_default) return;
  if (by_default) {
    const bool sent = is_sent(*info);
    if (sent && ignored) return;
    ::signal(number, SIG_DFL);  // an instruction that faulted does so again on return
    if (sent) ::raise(number);  // a signal that was sent comes only once
    return;
  }
  ++passed_on;
  if (other->sa_flags & SA_SIGINFO) {
    other->sa_sigaction(number, info, context);
  } else {
    other->sa_handler(number);
  }
  --passed_on;
}

void handle(int number, siginfo_t* info, void* raw) {
  const auto& context = *static_cast<const ucontext_t*>(raw);
  Worker* const worker = running;
  if (!worker || (number == break_off ? !worker->job->is_cancelled() : is_sent(*info))) {
    return pass_on(number, info, raw);
  }
  const auto code = static_cast<const char*>(code_of(context));
  if (number == break_off && !is_interruptible(*worker, code)) return;
  worker->trouble = Trouble();
  Trouble& trouble = worker->trouble;
  trouble.kind = Trouble::memory_fault;
  trouble.address = info->si_addr;
  trouble.write = was_write(context);
  note_code(*worker->job, code, trouble.code);
  if (number == SIGFPE) trouble.kind = Trouble::division;
  if (number == SIGILL || number == SIGTRAP) trouble.kind = Trouble::trap;
  if (number == break_off) trouble.kind = Trouble::cancelled;
  for (unsigned i = 0; i < worker->fiber_count; ++i) {
    if (number == SIGSEGV && in_guard(*worker->fibers[i], info->si_addr))
      trouble.kind = Trouble::stack;
  }
  restore_control_words(context);
  // Straight to the worker's own stack: the signal is not blocked (SA_NODEFER), and the system sees
  // from the stack pointer that this stack is free again.
  worker->give_up();
}

}  // namespace

void be_ready() {
  const uint64_t now = ticks(), last = looked.load(std::memory_order_relaxed);
  if (last && now - last < 1000 * ticks_per_microsecond()) return;
  const std::lock_guard lock(mutex);
  if (!last) {
    void* frames[1];
    ::backtrace(frames, 1);  // loads a library the first time, which a handler may not
    // If this library were unloaded, the handlers would point to unmapped code.
    Dl_info info;
    if (::dladdr(reinterpret_cast<void*>(&be_ready), &info)) {
      ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    }
  }
  for (const int number : handled) {
    struct sigaction current, ours = {};
    ::sigaction(number, nullptr, &current);
    if (current.sa_sigaction == handle) continue;
    others[number].found(current);
    ours.sa_sigaction = handle;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
    sigemptyset(&ours.sa_mask);
    ::sigaction(number, &ours, nullptr);
  }
  looked.store(now, std::memory_order_relaxed);
}

void be_ready_on_this_thread() {
  if (has_stack) return;
  has_stack = true;
  stack_t current;
  ::sigaltstack(nullptr, &current);
  if (!(current.ss_flags & SS_DISABLE) && current.ss_size >= signal_stack_bytes / 2) return;
  void* memory = ::mmap(nullptr, signal_stack_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  stack_t ours = {};
  ours.ss_sp = memory, ours.ss_size = signal_stack_bytes;
  ::sigaltstack(&ours, nullptr);
  own_stack = memory;
}

void done_on_this_thread() {
  if (!own_stack) return;
  stack_t none = {};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
  ::munmap(own_stack, signal_stack_bytes);
  own_stack = nullptr, has_stack = false;
}

}  // namespace cuda_on_cpu::signals
