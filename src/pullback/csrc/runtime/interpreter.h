/// Python, where the process has it: the same files serve the module and a library without Python.
#pragma once

namespace pullback {

/// Lets other threads run Python, if there is Python and this thread holds its lock.
///
/// Python's functions are looked up by name each time, which costs little beside the work around
/// it.
class WithoutInterpreter {
 public:
  WithoutInterpreter();
  ~WithoutInterpreter();
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  WithoutInterpreter& operator=(const WithoutInterpreter&) = delete;

 private:
  void* state_ = nullptr;  // a PyThreadState
};

}  // namespace pullback
