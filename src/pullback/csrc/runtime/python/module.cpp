/// The Python module `pullback_runtime`: definitions in, calls out.
#include "../node.h"
#include "blocks.h"
#include "caller.h"
#include "fields.h"
#include "loops.h"
#include "matrices.h"
#include "shortcuts.h"
#include "signals.h"
#include "trial.h"

#include <typeinfo>

namespace pullback {

namespace {

PyObject* py_define(PyObject*, PyObject* dictionary) {
  return guarded([&]() -> PyObject* {
    define(read_definition(dictionary));
    Py_RETURN_NONE;
  });
}

/// saved(grad_fn) -> [(name, tensor), ...], or None if it is not a node of pullback's.
PyObject* py_saved(PyObject*, PyObject* object) {
  return guarded([&]() -> PyObject* {
    if (!torch::autograd::THPCppFunction_Check(object)) Py_RETURN_NONE;
    NodePtr pointer = reinterpret_cast<PyNode*>(object)->node;
    // Compares types by address: a library built by `pullback build --as cmake` has a class of the
    // same name, perhaps of another version.
    const AutogradNode& any = *pointer;
    if (&typeid(any) != &typeid(Node)) Py_RETURN_NONE;
    auto* node = static_cast<Node*>(pointer.get());
    const Signature& signature = node->definition.signature;
    std::vector<std::string> names;
    for (const TensorSpec& input : signature.inputs) {
      if (node->tensors >> input.argument & 1) names.push_back(input.name);
    }
    for (size_t k = 0; k < signature.outputs.size(); ++k) {
      if (node->outputs >> k & 1) names.push_back(signature.outputs[k].name);
    }
    PyObject* list = PyList_New(0);
    for (size_t i = 0; i < node->saved.size() && i < names.size(); ++i) {
      const at::Tensor tensor = node->saved[i].unpack(pointer);
      if (!tensor.defined()) continue;
      PyObject* item = Py_BuildValue("(sN)", names[i].c_str(), THPVariable_Wrap(tensor));
      PyList_Append(list, item);
      Py_DECREF(item);
    }
    return list;
  });
}

PyObject* py_multiplies_halves(PyObject*, PyObject*) {
  return PyBool_FromLong(multiplies_halves());
}

PyMethodDef module_methods[] = {
    {"define", py_define, METH_O, "Define or redefine an operator."},
    {"accelerate", accelerate, METH_O, "Let instances be called in C."},
    {"parallel", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(parallel)),
     METH_FASTCALL, "Run a kernel over tasks that threads share."},
    {"launch", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(launch)), METH_FASTCALL,
     "Launch a kernel on a GPU."},
    {"order_entries", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(py_order_entries)),
     METH_FASTCALL, "Sort the entries of a scatter by row."},
    {"multiplies_halves", py_multiplies_halves, METH_NOARGS,
     "Tell whether this processor multiplies matrices of bfloat16."},
    {"sweep", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(sweep)), METH_FASTCALL,
     "Run a pass over blocks in threads."},
    {"saved", py_saved, METH_O, "What a node of pullback's saved."},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef module_definition = {PyModuleDef_HEAD_INIT,
                                 "pullback_runtime",
                                 nullptr,
                                 -1,
                                 module_methods,
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 nullptr};

}  // namespace

}  // namespace pullback

PyMODINIT_FUNC PyInit_pullback_runtime() {
  PyObject* module = PyModule_Create(&pullback::module_definition);
  PyObject* caller = module ? pullback::make_caller_type() : nullptr;
  if (!caller || PyModule_AddObject(module, "Caller", caller) < 0) return nullptr;
  PyObject* shortcuts = pullback::make_shortcuts_type();
  if (!shortcuts || PyModule_AddObject(module, "Shortcuts", shortcuts) < 0) return nullptr;
  pullback::handle_signals();
  pullback::try_in_python();
  return module;
}
