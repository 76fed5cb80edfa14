/// Asks Python for a formula's compiled loop, or derivative, when it is first needed.
///
/// The runtime holds no lock meanwhile: Python may compile, register further operators and run
/// other threads, which call operators in turn.
#include "lazy.h"

#include "asking.h"

#include <string_view>

namespace pullback {

namespace {

/// An argument of a formula as Python has it: a tensor, a number or None.
PyObject* wrap(const c10::IValue& value) {
  if (value.isTensor()) return THPVariable_Wrap(value.toTensor());
  if (value.isInt()) return PyLong_FromLongLong(value.toInt());
  if (value.isDouble()) return PyFloat_FromDouble(value.toDouble());
  if (value.isBool()) return PyBool_FromLong(value.toBool());
  return Py_NewRef(Py_None);
}

}  // namespace

PythonSupply::PythonSupply(PyObject* request, PyObject* complete, PyObject* keep)
    : request_(Py_NewRef(request)), complete_(Py_NewRef(complete)), keep_(Py_NewRef(keep)) {}

const CompiledLoop& PythonSupply::loop(const Signature& signature, const Formula& formula,
                                       const Loops::Key& key) {
  const WithGil held(signature);
  if (const CompiledLoop* loop = formula.loops->find(key)) return *loop;
  const Object answer = result_of(PyObject_CallFunction(
      request_, "ssKK", key.device == c10::DeviceType::CUDA ? "cuda" : "cpu",
      dtype_text(key.dtype).c_str(), static_cast<unsigned long long>(key.wanted),
      static_cast<unsigned long long>(key.present)));
  unsigned long long address = 0, used = 0;
  if (!PyArg_ParseTuple(answer.get(), "KK", &address, &used)) raise(take_error());
  TORCH_INTERNAL_ASSERT(address && !(used & ~key.present), "a loop of ", signature.name,
                        " cannot be called");
  // While Python compiled, another thread may have had the same loop compiled.
  if (const CompiledLoop* loop = formula.loops->find(key)) return *loop;
  return formula.loops->add(key, {reinterpret_cast<void*>(address), used, key.wanted});
}

void PythonSupply::complete(const Entry& entry, const char* kind) {
  const WithGil held(entry.definition.load()->signature);
  // While this thread waited for Python, another may have had it derived, or have redefined it.
  const Definition& definition = *entry.definition.load();
  const auto program = std::string_view(kind) == "jvp" ? &Definition::jvp : &Definition::backward;
  if (!definition.supply || definition.*program) return;
  const auto& supply = static_cast<const PythonSupply&>(*definition.supply);
  result_of(PyObject_CallFunction(supply.complete_, "s", kind));
}

std::optional<size_t> PythonSupply::keep(const Entry& entry, c10::ArrayRef<c10::IValue> arguments) {
  if (keep_ == Py_None) return {};
  const WithGil held(entry.definition.load()->signature);
  const Object given(result_of(PyTuple_New(arguments.size())));
  for (size_t k = 0; k < arguments.size(); ++k)
    PyTuple_SET_ITEM(given.get(), k, result_of(wrap(arguments[k])).release());
  const Object place(result_of(PyObject_CallObject(keep_, given.get())));
  if (place.get() == Py_None) return {};
  return PyLong_AsSize_t(place.get());
}

}  // namespace pullback
