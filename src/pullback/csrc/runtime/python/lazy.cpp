/// What a formula asks Python for when it is first needed: a compiled loop, a derivative.
///
/// No lock of the runtime's is held meanwhile: Python may compile, register further operators and
/// run other threads, which call operators in turn.
#include "lazy.h"

#include <string_view>

namespace pullback {

namespace {

bool python_is_gone() {
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
    // Python would end or hang the thread that asks for its lock now.
    if (python_is_gone()) raise(signature.name + ": nothing more can be compiled while Python shuts down");
    return PyGILState_Ensure();
  }

  const PyGILState_STATE state_;
};

struct Release {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Object = std::unique_ptr<PyObject, Release>;

/// The text of the exception that is set: of a PullbackError just its own, which `operator.refined`
/// turns back into one; of anything else, a mistake of ours, also the type.
std::string take_error() {
  const Object error(take_exception());
  // An interrupt is not the end of one call but of the program: Python will see it once more.
  if (PyErr_GivenExceptionMatches(error.get(), PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
  const std::string type = Py_TYPE(error.get())->tp_name;
  const Object shown(PyObject_Str(error.get()));
  const char* text = shown ? PyUnicode_AsUTF8(shown.get()) : nullptr;
  if (!text) PyErr_Clear();
  if (text && type == "PullbackError") return text;
  return type + ": " + (text ? text : "(it cannot be shown)");
}

/// Returns what a Python function returned; the caller holds the GIL.
Object result_of(PyObject* returned) {
  if (!returned) raise(take_error());
  return Object(returned);
}

}  // namespace

PythonSupply::PythonSupply(PyObject* request, PyObject* complete)
    : request_(Py_NewRef(request)), complete_(Py_NewRef(complete)) {}

const CompiledLoop& PythonSupply::loop(const Signature& signature, const Formula& formula, const Loops::Key& key) {
  const WithGil held(signature);
  if (const CompiledLoop* loop = formula.loops->find(key)) return *loop;
  const Object answer = result_of(PyObject_CallFunction(
      request_, "ssKK", key.device == c10::DeviceType::CUDA ? "cuda" : "cpu",
      dtype_text(key.dtype).c_str(), static_cast<unsigned long long>(key.wanted),
      static_cast<unsigned long long>(key.present)));
  unsigned long long address = 0, used = 0;
  if (!PyArg_ParseTuple(answer.get(), "KK", &address, &used)) raise(take_error());
  TORCH_INTERNAL_ASSERT(address && !(used & ~key.present), "a loop of ", signature.name, " cannot be called");
  // While Python compiled, another thread may have had the same loop compiled.
  if (const CompiledLoop* loop = formula.loops->find(key)) return *loop;
  return formula.loops->add(key, {reinterpret_cast<void*>(address), used, key.wanted});
}

void PythonSupply::complete(const Entry& entry, const char* kind) {
  const WithGil held(entry.definition.load()->signature);
  // While this thread waited for Python, another may have had it derived, or defined another operator.
  const Definition& definition = *entry.definition.load();
  const auto program = std::string_view(kind) == "jvp" ? &Definition::jvp : &Definition::backward;
  if (!definition.supply || definition.*program) return;
  const auto& supply = static_cast<const PythonSupply&>(*definition.supply);
  result_of(PyObject_CallFunction(supply.complete_, "s", kind));
}

}  // namespace pullback
