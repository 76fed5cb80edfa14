#include "interpreter.h"

#include <dlfcn.h>

namespace pullback {

namespace {

template <class Function>
Function named(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

WithoutInterpreter::WithoutInterpreter() {
  const auto is_running = named<int (*)()>("Py_IsInitialized");
  const auto holds = named<int (*)()>("PyGILState_Check");
  const auto release = named<void* (*)()>("PyEval_SaveThread");
  if (is_running && holds && release && is_running() && holds()) state_ = release();
}

WithoutInterpreter::~WithoutInterpreter() {
  if (state_) named<void (*)(void*)>("PyEval_RestoreThread")(state_);
}

}  // namespace pullback
