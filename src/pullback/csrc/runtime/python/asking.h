/// How the runtime calls Python, from whichever thread.
#pragma once

#include "python.h"

#include "../signature.h"

#include <memory>
#include <string>

namespace pullback {

inline bool python_is_gone() {
#if PY_VERSION_HEX >= 0x030D0000
  return !Py_IsInitialized() || Py_IsFinalizing();
#else
  return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

/// Lets this thread run Python, whichever thread it is.
class WithGil {
 public:
  explicit WithGil(const Signature& signature) : state_(ensure(signature)) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  static PyGILState_STATE ensure(const Signature& signature) {
    // Python would now end or hang a thread that asks for the GIL.
    if (python_is_gone())
      raise(signature.name + ": nothing more can be compiled while Python shuts down");
    return PyGILState_Ensure();
  }

  const PyGILState_STATE state_;
};

struct Release {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Object = std::unique_ptr<PyObject, Release>;

/// The text of the exception that is set. For a PullbackError this is its own text, which
/// `operator.refined` turns back into one; anything else is a mistake of ours and also gets its
/// type.
inline std::string take_error() {
  const Object error(take_exception());
  // An interrupt ends the program and not just one call: let Python see it again.
  if (PyErr_GivenExceptionMatches(error.get(), PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
  const std::string type = Py_TYPE(error.get())->tp_name;
  const Object shown(PyObject_Str(error.get()));
  const char* text = shown ? PyUnicode_AsUTF8(shown.get()) : nullptr;
  if (!text) PyErr_Clear();
  if (text && type == "PullbackError") return text;
  return type + ": " + (text ? text : "(it cannot be shown)");
}

/// Returns what a Python function returned; the caller holds the GIL.
inline Object result_of(PyObject* returned) {
  if (!returned) raise(take_error());
  return Object(returned);
}

}  // namespace pullback
