#include "../trial.h"

#include "asking.h"
#include "trial.h"

namespace pullback {

namespace {

constexpr const char* capsule_name = "pullback.trial";

PyObject* wrap_all(const Tensors& tensors) {
  PyObject* tuple = PyTuple_New(tensors.size());
  for (size_t i = 0; tuple && i < tensors.size(); ++i) {
    PyTuple_SET_ITEM(tuple, i,
                     tensors[i].defined() ? THPVariable_Wrap(tensors[i]) : Py_NewRef(Py_None));
  }
  return tuple;
}

/// run(*tensors) -> tuple: backward of the call, None for an undefined tensor.
PyObject* run_trial(PyObject* capsule, PyObject* tensors) {
  return guarded([&]() -> PyObject* {
    const auto* trial = static_cast<const Trial*>(PyCapsule_GetPointer(capsule, capsule_name));
    if (!trial) return nullptr;
    Tensors given, found;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tensors); ++i) {
      PyObject* object = PyTuple_GET_ITEM(tensors, i);
      given.push_back(object == Py_None ? at::Tensor()
                                        : reinterpret_cast<PyTensor*>(object)->tensor);
    }
    {
      const WithoutGil released;
      found = trial->run(given);
    }
    return wrap_all(found);
  });
}

PyMethodDef run_method = {"run", run_trial, METH_VARARGS,
                          "Run backward of a call with other tensors."};

void ask_python(const Trial& trial) {
  const WithGil held(trial.signature);
  const Object module(result_of(PyImport_ImportModule("pullback.bind.linear")));
  const Object capsule(result_of(PyCapsule_New(const_cast<Trial*>(&trial), capsule_name, nullptr)));
  const Object run(result_of(PyCFunction_New(&run_method, capsule.get())));
  const Object tensors(result_of(wrap_all(trial.tensors)));
  const Object flags(result_of(PyTuple_New(trial.arriving.size())));
  for (size_t k = 0; k < trial.arriving.size(); ++k)
    PyTuple_SET_ITEM(flags.get(), k, PyBool_FromLong(trial.arriving[k]));
  PyObject* answer =
      PyObject_CallMethod(module.get(), "require_linear_of", "ssOOO", trial.signature.name.c_str(),
                          trial.kind.c_str(), tensors.get(), flags.get(), run.get());
  PyCapsule_SetName(capsule.get(), "over");  // a traceback may keep it longer than the call lasts
  result_of(answer);
}

}  // namespace

void try_in_python() { require_linear = ask_python; }

}  // namespace pullback
