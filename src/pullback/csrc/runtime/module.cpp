/// The Python module `pullback_runtime`: definitions in, calls out.
#include "python.h"

#include "node.h"

#include <ATen/PythonTorchFunctionTLS.h>

#include <structmember.h>

namespace pullback {

namespace {

/// A Python tuple, read field by field in the order in which `bind/native.py` writes it.
class Fields {
 public:
  explicit Fields(PyObject* tuple) : tuple_(tuple) {
    if (!PyTuple_Check(tuple)) throw std::invalid_argument("pullback_runtime: a tuple was expected");
  }

  PyObject* next() {
    if (position_ >= PyTuple_GET_SIZE(tuple_)) throw std::invalid_argument("pullback_runtime: a field is missing");
    return PyTuple_GET_ITEM(tuple_, position_++);
  }
  int64_t integer() { return PyLong_AsLongLong(next()); }
  bool boolean() { return PyObject_IsTrue(next()) == 1; }
  std::string text() {
    const char* text = PyUnicode_AsUTF8(next());
    if (!text) throw std::invalid_argument("pullback_runtime: a string was expected");
    return text;
  }
  template <class Read>
  auto list(Read read) {
    Fields items(next());
    std::vector<decltype(read(items))> result;
    while (items.position_ < PyTuple_GET_SIZE(items.tuple_)) result.push_back(read(items));
    return result;
  }
  template <class Read>
  auto optional(Read read) {
    PyObject* item = next();
    std::optional<decltype(read(std::declval<Fields&>()))> result;
    if (item != Py_None) {
      Fields fields(item);
      result = read(fields);
    }
    return result;
  }
  Fields nested() { return Fields(next()); }

 private:
  PyObject* tuple_;
  Py_ssize_t position_ = 0;
};

c10::IValue constant(PyObject* object) {
  if (object == Py_None) return {};
  if (PyBool_Check(object)) return object == Py_True;
  if (PyLong_Check(object)) return static_cast<int64_t>(PyLong_AsLongLong(object));
  if (PyFloat_Check(object)) return PyFloat_AS_DOUBLE(object);
  if (PyUnicode_Check(object)) return std::string(PyUnicode_AsUTF8(object));
  throw std::invalid_argument("pullback_runtime: a constant of an unknown type");
}

Dimension read_dimension(Fields& fields) {
  Fields f = fields.nested();
  Dimension dimension;
  dimension.text = f.text();
  dimension.steps = f.list([](Fields& steps) {
    Fields step = steps.nested();
    const auto kind = static_cast<Step::Kind>(step.integer());
    return Step{kind, step.integer()};
  });
  return dimension;
}

TensorSpec read_tensor(Fields& fields) {
  Fields f = fields.nested();
  TensorSpec spec;
  spec.name = f.text();
  spec.text = f.text();
  spec.before = f.list(read_dimension);
  spec.after = f.list(read_dimension);
  spec.batched = f.boolean();
  spec.optional = f.boolean();
  const int64_t dtype = f.integer();
  if (dtype >= 0) spec.dtype = static_cast<at::ScalarType>(dtype);
  spec.argument = f.integer();
  return spec;
}

ScalarSpec read_scalar(Fields& fields) {
  Fields f = fields.nested();
  const auto kind = static_cast<ScalarSpec::Kind>(f.integer());
  std::string name = f.text();
  return {kind, std::move(name), static_cast<size_t>(f.integer())};
}

Reference read_reference(Fields& f) {
  Reference reference;
  reference.kind = static_cast<Reference::Kind>(f.integer());
  reference.index = f.integer();
  reference.result = f.integer();
  reference.optional = f.boolean();
  reference.constant = constant(f.next());
  return reference;
}

Program::OperatorCall read_call(Fields& fields) {
  Fields f = fields.nested();
  std::string name = f.text();
  Program::OperatorCall call{c10::OperatorName(std::move(name), f.text()), {}, 1};
  call.arguments = f.list([](Fields& arguments) {
    Fields argument = arguments.nested();
    return read_reference(argument);
  });
  call.results = f.integer();
  return call;
}

Program read_program(Fields& f) {
  Program program;
  program.calls = f.list(read_call);
  program.results = f.list([](Fields& results) { return results.optional(read_reference); });
  return program;
}

NativeKernel read_kernel(Fields& fields) {
  Fields f = fields.nested();
  const auto function = reinterpret_cast<Kernel>(f.integer());
  return {function, f.boolean()};
}

Definition read_definition(PyObject* tuple) {
  Fields f(tuple);
  Definition definition;
  Signature& signature = definition.signature;
  signature.name = f.text();
  signature.inputs = f.list(read_tensor);
  signature.outputs = f.list(read_tensor);
  signature.scalars = f.list(read_scalar);
  signature.dimensions = f.list([](Fields& names) { return names.text(); });
  signature.arguments = f.integer();
  signature.masked = f.boolean();
  definition.backward = f.optional(read_program);
  definition.jvp = f.optional(read_program);
  definition.cpu = read_kernel(f);
  definition.cuda = read_kernel(f);
  return definition;
}

/// Runs `body` with C++ exceptions turned into Python's, as PyTorch turns its own.
template <class Body>
PyObject* guarded(Body body) {
  try {
    return body();
  } catch (...) {
    if (!PyErr_Occurred()) torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

/// A parameter of the schema, as a call fills it.
struct Parameter {
  enum class Kind { tensor, optional_tensor, integer, real, boolean, text, other } kind;
  PyObject* name;  // interned
  std::optional<c10::IValue> fallback;
  bool keyword_only;
};

/// A callable that goes from Python's vectorcall straight to the dispatcher.
///
/// It saves the half of a small call that parsing by schema costs. Whatever is not plain (tensor
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

bool is_plain_tensor(PyObject* object) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  return type == THPVariableClass || type == parameter_class;
}

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
      if (!PyFloat_CheckExact(object)) return false;  // an int goes the slow way
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

bool fill(const Caller& self, torch::jit::Stack& stack, PyObject* const* args, size_t positional, PyObject* names) {
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
  // `refine` itself failed: its own error is the one to see.
  if (refined) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(refined)), refined);
    Py_DECREF(refined);
  }
  Py_DECREF(error);
  return nullptr;
}

PyObject* call(PyObject* callable, PyObject* const* args, size_t flags, PyObject* names) {
  const Caller& self = *reinterpret_cast<Caller*>(callable);
  torch::jit::Stack stack;
  if (self.entry->definition.load() != self.definition || at::impl::torch_function_mode_enabled() ||
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
      return argument.type()->isSubtypeOf(*c10::OptionalType::ofTensor()) ? Parameter::Kind::optional_tensor
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
      self.parameters.push_back({kind_of(argument), PyUnicode_InternFromString(argument.name().c_str()),
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

/// accelerate(class): calls of instances take `call`, although the class has a `__call__` in Python.
///
/// Dynamo reads that method and traces through it; a callable written in C alone it cannot trace.
PyObject* py_accelerate(PyObject*, PyObject* object) {
  auto* type = reinterpret_cast<PyTypeObject*>(object);
  type->tp_call = PyVectorcall_Call;
  type->tp_vectorcall_offset = offsetof(Caller, vectorcall);
  type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  PyType_Modified(type);
  Py_RETURN_NONE;
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
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL, caller_slots};

PyObject* py_define(PyObject*, PyObject* tuple) {
  return guarded([&]() -> PyObject* {
    define(read_definition(tuple));
    Py_RETURN_NONE;
  });
}

/// saved(grad_fn) -> [(name, tensor), ...], or None if it is not a node of pullback's.
PyObject* py_saved(PyObject*, PyObject* object) {
  return guarded([&]() -> PyObject* {
    if (!torch::autograd::THPCppFunction_Check(object)) Py_RETURN_NONE;
    NodePtr pointer = reinterpret_cast<PyNode*>(object)->node;
    auto* node = dynamic_cast<Node*>(pointer.get());
    if (!node) Py_RETURN_NONE;
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

PyMethodDef module_methods[] = {{"define", py_define, METH_O, "Define or redefine an operator."},
                                {"accelerate", py_accelerate, METH_O, "Let instances be called in C."},
                                {"saved", py_saved, METH_O, "What a node of pullback's saved."},
                                {nullptr, nullptr, 0, nullptr}};
PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, "pullback_runtime", nullptr, -1, module_methods,
                                 nullptr, nullptr, nullptr, nullptr};

}  // namespace

}  // namespace pullback

PyMODINIT_FUNC PyInit_pullback_runtime() {
  using namespace pullback;
  PyObject* module = PyModule_Create(&module_definition);
  PyObject* nn = PyImport_ImportModule("torch.nn");
  if (!module || !nn) return nullptr;
  parameter_class = PyObject_GetAttrString(nn, "Parameter");
  Py_DECREF(nn);
  PyObject* caller = PyType_FromSpec(&caller_spec);
  if (!caller || !parameter_class || PyModule_AddObject(module, "Caller", caller) < 0) return nullptr;
  return module;
}
