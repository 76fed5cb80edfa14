#include "caller.h"

#include "../operator.h"

#include <ATen/PythonTorchFunctionTLS.h>

#include <structmember.h>

namespace pullback {

namespace {

/// A parameter of the schema.
struct Parameter {
  enum class Kind { tensor, optional_tensor, integer, real, boolean, text, other } kind;
  PyObject* name;  // interned
  std::optional<c10::IValue> fallback;
  bool keyword_only;
};

/// A callable that goes from Python's vectorcall straight to the dispatcher.
///
/// It saves parsing by schema, which is half of a small call. A call that is not plain (tensor
/// subclasses, torch function modes, a wrong argument) goes to the method `__call__` instead.
struct Caller {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  const Entry* entry;
  const Definition* definition;
  std::optional<c10::OperatorHandle> op;
  std::vector<Parameter> parameters;
};

PyObject* parameter_class = nullptr;  // torch.nn.Parameter

/// Appends `object` if it is plainly of the parameter's type.
bool push(torch::jit::Stack& stack, const Parameter& parameter, PyObject* object) {
  switch (parameter.kind) {
    case Parameter::Kind::optional_tensor:
      if (object == Py_None) {
        stack.emplace_back();
        return true;
      }
      [[fallthrough]];
    case Parameter::Kind::tensor:
      if (!is_plain_tensor(object)) return false;
      stack.emplace_back(reinterpret_cast<PyTensor*>(object)->tensor);
      return true;
    case Parameter::Kind::integer: {
      if (!PyLong_CheckExact(object)) return false;
      int overflow = 0;
      stack.emplace_back(static_cast<int64_t>(PyLong_AsLongLongAndOverflow(object, &overflow)));
      return !overflow;
    }
    case Parameter::Kind::real:
      if (!PyFloat_CheckExact(object)) return false;  // an int takes the slow path
      stack.emplace_back(PyFloat_AS_DOUBLE(object));
      return true;
    case Parameter::Kind::boolean:
      if (!PyBool_Check(object)) return false;
      stack.emplace_back(object == Py_True);
      return true;
    default: return false;
  }
}

PyObject* find_keyword(PyObject* name, PyObject* const* values, PyObject* names) {
  const Py_ssize_t count = PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* given = PyTuple_GET_ITEM(names, i);
    if (given == name || PyUnicode_Compare(given, name) == 0) return values[i];
  }
  return nullptr;
}

bool fill(const Caller& self, torch::jit::Stack& stack, PyObject* const* args, size_t positional,
          PyObject* names) {
  size_t keywords = names ? PyTuple_GET_SIZE(names) : 0;
  if (positional > self.parameters.size()) return false;
  stack.reserve(self.parameters.size());
  for (size_t i = 0; i < self.parameters.size(); ++i) {
    const Parameter& parameter = self.parameters[i];
    PyObject* value = nullptr;
    if (i < positional) {
      if (parameter.keyword_only) return false;
      value = args[i];
    } else if (keywords && (value = find_keyword(parameter.name, args + positional, names))) {
      --keywords;
    }
    if (value ? !push(stack, parameter, value) : !parameter.fallback) return false;
    if (!value) stack.push_back(*parameter.fallback);
  }
  return keywords == 0;
}

PyObject* wrap(const torch::jit::Stack& stack) {
  const auto one = [](const c10::IValue& value) {
    const at::Tensor& tensor = tensor_of(value);
    if (!tensor.defined()) Py_RETURN_NONE;
    return THPVariable_Wrap(tensor);
  };
  if (stack.size() == 1) return one(stack[0]);
  PyObject* tuple = PyTuple_New(stack.size());
  for (size_t i = 0; tuple && i < stack.size(); ++i) PyTuple_SET_ITEM(tuple, i, one(stack[i]));
  return tuple;
}

PyObject* call_slow(PyObject* callable, PyObject* const* args, size_t flags, PyObject* names) {
  PyObject* slow = PyObject_GetAttrString(callable, "__call__");
  if (!slow) return nullptr;
  PyObject* result = PyObject_Vectorcall(slow, args, PyVectorcall_NARGS(flags), names);
  Py_DECREF(slow);
  return result;
}

/// Lets Python turn one of the runtime's messages into a PullbackError.
PyObject* raise_refined(PyObject* callable) {
  PyObject* error = take_exception();
  PyObject* refined = PyObject_CallMethod(callable, "refine", "O", error);
  // If `refine` itself failed, its own error is the one to show.
  if (refined) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(refined)), refined);
    Py_DECREF(refined);
  }
  Py_DECREF(error);
  return nullptr;
}

/// Whether the operator is still the one that was found; true also if only a derivative was added.
bool is_current(Caller& self) {
  const Definition* definition = self.entry->definition.load();
  if (C10_LIKELY(definition == self.definition)) return true;
  if (!definition || !self.definition || !continues(*definition, *self.definition)) return false;
  self.definition = definition;
  return true;
}

PyObject* call(PyObject* callable, PyObject* const* args, size_t flags, PyObject* names) {
  Caller& self = *reinterpret_cast<Caller*>(callable);
  torch::jit::Stack stack;
  if (!is_current(self) || at::impl::torch_function_mode_enabled() ||
      !fill(self, stack, args, PyVectorcall_NARGS(flags), names)) {
    return call_slow(callable, args, flags, names);
  }
  PyObject* result = guarded([&] {
    {
      const WithoutGil released;
      self.op->callBoxed(&stack);
    }
    return wrap(stack);
  });
  return result ? result : raise_refined(callable);
}

Parameter::Kind kind_of(const c10::Argument& argument) {
  switch (argument.type()->kind()) {
    case c10::TypeKind::TensorType: return Parameter::Kind::tensor;
    case c10::TypeKind::IntType: return Parameter::Kind::integer;
    case c10::TypeKind::FloatType: return Parameter::Kind::real;
    case c10::TypeKind::BoolType: return Parameter::Kind::boolean;
    case c10::TypeKind::OptionalType:
      return argument.type()->isSubtypeOf(*c10::OptionalType::ofTensor())
                 ? Parameter::Kind::optional_tensor
                 : Parameter::Kind::other;
    default: return Parameter::Kind::other;
  }
}

/// Caller.find(name): looks the operator up, once for all calls.
PyObject* find(PyObject* object, PyObject* name) {
  return guarded([&]() -> PyObject* {
    Caller& self = *reinterpret_cast<Caller*>(object);
    const std::string text = PyUnicode_AsUTF8(name);
    self.op = c10::Dispatcher::singleton().findSchemaOrThrow(text.c_str(), "");
    self.entry = &entry_of(text);
    self.definition = self.entry->definition.load();
    self.parameters.clear();
    for (const c10::Argument& argument : self.op->schema().arguments()) {
      self.parameters.push_back({kind_of(argument),
                                 PyUnicode_InternFromString(argument.name().c_str()),
                                 argument.default_value(), argument.kwarg_only()});
    }
    Py_RETURN_NONE;
  });
}

PyObject* new_caller(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* object = type->tp_alloc(type, 0);
  if (!object) return nullptr;
  Caller& self = *reinterpret_cast<Caller*>(object);
  self.vectorcall = call;
  new (&self.op) std::optional<c10::OperatorHandle>();
  new (&self.parameters) std::vector<Parameter>();
  return object;
}

void delete_caller(PyObject* object) {
  Caller& self = *reinterpret_cast<Caller*>(object);
  PyTypeObject* type = Py_TYPE(object);
  self.op.~optional();
  self.parameters.~vector();
  type->tp_free(object);
  Py_DECREF(type);
}

PyMemberDef caller_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Caller, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyMethodDef caller_methods[] = {{"find", find, METH_O, "Look the operator up by its name."},
                                {nullptr, nullptr, 0, nullptr}};
PyType_Slot caller_slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_caller)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(delete_caller)},
                              {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                              {Py_tp_members, caller_members},
                              {Py_tp_methods, caller_methods},
                              {0, nullptr}};
PyType_Spec caller_spec = {"pullback_runtime.Caller", sizeof(Caller), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
                           caller_slots};

}  // namespace

bool is_plain_tensor(PyObject* object) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  return type == THPVariableClass || type == parameter_class;
}

PyObject* accelerate(PyObject*, PyObject* object) {
  auto* type = reinterpret_cast<PyTypeObject*>(object);
  type->tp_call = PyVectorcall_Call;
  type->tp_vectorcall_offset = offsetof(Caller, vectorcall);
  type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  PyType_Modified(type);
  Py_RETURN_NONE;
}

PyObject* make_caller_type() {
  PyObject* nn = PyImport_ImportModule("torch.nn");
  if (!nn) return nullptr;
  parameter_class = PyObject_GetAttrString(nn, "Parameter");
  Py_DECREF(nn);
  return parameter_class ? PyType_FromSpec(&caller_spec) : nullptr;
}

}  // namespace pullback
