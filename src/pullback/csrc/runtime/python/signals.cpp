/// Names the operator whose kernel ends the process, or does not return after Ctrl-C. The handlers
/// write to stderr, change nothing else, and call the handler that was there before.
#include "signals.h"

#include "../running.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace pullback {

namespace {

struct Fatal {
  int number;
  const char* name;
} constexpr fatal[] = {{SIGSEGV, "SIGSEGV, an invalid address"},
                       {SIGBUS, "SIGBUS, an invalid address"},
                       {SIGFPE, "SIGFPE, such as an integer division by zero"},
                       {SIGILL, "SIGILL, an instruction that this processor lacks"},
                       {SIGABRT, "SIGABRT, from abort() or assert()"}};
constexpr int64_t patience = 1'000'000'000;  // nanoseconds: nobody means two presses at once

struct sigaction before[NSIG];
std::atomic<int64_t> first_press;
char interrupted[256];

/// A line that is written at once. It uses only async-signal-safe functions.
class Note {
 public:
  Note& operator<<(const char* text) {
    for (; *text && size_ < sizeof text_; ++text) text_[size_++] = *text;
    return *this;
  }
  ~Note() { [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text_, size_); }

 private:
  char text_[1024];
  size_t size_ = 0;
};

/// Returns the kernel that this thread is in; or, if it is in none, one that another thread is in:
/// a kernel may have threads of its own.
Running* running(bool own_alone) {
  Running* other = nullptr;
  for (Running* one = every_running.load(); one; one = one->next) {
    if (!one->kernel.load(std::memory_order_relaxed)) continue;
    if (pthread_equal(one->thread.load(), pthread_self())) return one;
    other = one;
  }
  return own_alone ? nullptr : other;
}

void pass_on(int number, siginfo_t* info, void* context) {
  const struct sigaction& other = before[number];
  if (other.sa_flags & SA_SIGINFO) return other.sa_sigaction(number, info, context);
  if (other.sa_handler != SIG_DFL && other.sa_handler != SIG_IGN) return other.sa_handler(number);
  // As if we had not been here: a faulting instruction faults again, a signal that was sent is sent
  // again.
  ::sigaction(number, &other, nullptr);
  if (info->si_code <= 0) ::raise(number);
}

void on_fatal(int number, siginfo_t* info, void* context) {
  const int error = errno;
  if (const Running* one = running(false)) {
    for (const Fatal& signal : fatal) {
      if (signal.number != number) continue;
      Note() << "pullback: the kernel of " << one->kernel.load()
             << " ends the process: " << signal.name
             << "\n    help: pb.check runs it in a process of its own, and goes on; a debugger "
                "shows the line\n";
    }
  }
  pass_on(number, info, context);
  errno = error;
}

int64_t now() {
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

/// Python sees an interrupt when the kernel has returned. If it does not return, the second press
/// ends the process: there is no way out of the middle of a kernel.
void on_interrupt(int number, siginfo_t* info, void* context) {
  const int error = errno;
  Running* const one = running(true);
  const char* const kernel = one ? one->kernel.load() : nullptr;
  if (kernel == interrupted && now() - first_press > patience) {
    Note() << "pullback: the kernel of " << kernel
           << " was interrupted and goes on: the process ends\n";
    ::signal(number, SIG_DFL);
    ::raise(number);
  } else if (kernel && kernel != interrupted) {
    ::strncpy(interrupted, kernel, sizeof interrupted - 1);
    first_press = now();
    // By this name the next press recognises the same call.
    one->kernel = interrupted;
    Note() << "pullback: the kernel of " << kernel
           << " is running; Python is interrupted when it returns. Ctrl-C again, a second later, "
              "ends the process\n";
  }
  pass_on(number, info, context);
  errno = error;
}

void handle(int number, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction ours = {};
  ::sigaction(number, nullptr, &before[number]);
  ours.sa_sigaction = handler;
  // Whether an interrupted system call is resumed stays as it was.
  ours.sa_flags = (before[number].sa_flags & SA_RESTART) | SA_SIGINFO | SA_ONSTACK;
  ::sigaction(number, &ours, nullptr);
}

}  // namespace

void handle_signals() {
  for (const Fatal& signal : fatal) handle(signal.number, on_fatal);
  ::sigaction(SIGINT, nullptr, &before[SIGINT]);
  const bool of_python =
      before[SIGINT].sa_handler != SIG_DFL && before[SIGINT].sa_handler != SIG_IGN;
  if (of_python) handle(SIGINT, on_interrupt);
}

}  // namespace pullback
