#include "fields.h"

#include "lazy.h"
#include "shortcuts.h"

#include <algorithm>
#include <initializer_list>
#include <stdexcept>

namespace pullback {

namespace {

/// Returns the enumerator with this name in Python: the names are in the order of the enum.
template <class Enum>
Enum named(const std::string& name, std::initializer_list<const char*> names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw std::invalid_argument("pullback_runtime: unknown: " + name);
  return static_cast<Enum>(found - names.begin());
}

int64_t integer(PyObject* object) { return PyLong_AsLongLong(object); }

std::string text(PyObject* object) {
  const char* text = PyUnicode_AsUTF8(object);
  if (!text) throw std::invalid_argument("pullback_runtime: a string was expected");
  return text;
}

template <class Read>
auto list(PyObject* tuple, Read read) {
  if (!PyTuple_Check(tuple)) throw std::invalid_argument("pullback_runtime: a tuple was expected");
  std::vector<decltype(read(tuple))> result;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
    result.push_back(read(PyTuple_GET_ITEM(tuple, i)));
  return result;
}

template <class Read>
auto optional(PyObject* object, Read read) {
  std::optional<decltype(read(object))> result;
  if (object != Py_None) result = read(object);
  return result;
}

/// A struct of the runtime as `bind/native.py` writes it: a dictionary of its members.
class Fields {
 public:
  explicit Fields(PyObject* dictionary) : dictionary_(dictionary) {
    if (!PyDict_Check(dictionary))
      throw std::invalid_argument("pullback_runtime: a dictionary was expected");
  }

  PyObject* operator[](const char* name) const {
    PyObject* found = PyDict_GetItemString(dictionary_, name);
    if (!found)
      throw std::invalid_argument(std::string("pullback_runtime: there is no field ") + name);
    return found;
  }
  int64_t integer(const char* name) const { return pullback::integer((*this)[name]); }
  bool boolean(const char* name) const { return PyObject_IsTrue((*this)[name]) == 1; }
  std::string text(const char* name) const { return pullback::text((*this)[name]); }
  template <class Read>
  auto list(const char* name, Read read) const {
    return pullback::list((*this)[name], read);
  }
  template <class Read>
  auto optional(const char* name, Read read) const {
    return pullback::optional((*this)[name], read);
  }

 private:
  PyObject* dictionary_;
};

/// A list of numbers, all of the type of the first.
c10::IValue constants(PyObject* tuple) {
  PyObject* first = PyTuple_GET_SIZE(tuple) ? PyTuple_GET_ITEM(tuple, 0) : nullptr;
  if (first && PyFloat_Check(first)) return list(tuple, PyFloat_AsDouble);
  if (!first || !PyBool_Check(first)) return list(tuple, integer);
  c10::List<bool> flags;
  for (PyObject* flag : list(tuple, [](PyObject* item) { return item; }))
    flags.push_back(flag == Py_True);
  return flags;
}

c10::IValue constant(PyObject* object) {
  if (object == Py_None) return {};
  if (PyBool_Check(object)) return object == Py_True;
  if (PyLong_Check(object)) return static_cast<int64_t>(PyLong_AsLongLong(object));
  if (PyFloat_Check(object)) return PyFloat_AS_DOUBLE(object);
  if (PyUnicode_Check(object)) return std::string(PyUnicode_AsUTF8(object));
  if (PyTuple_Check(object)) return constants(object);
  throw std::invalid_argument("pullback_runtime: a constant of an unknown type");
}

Step read_step(PyObject* object) {
  const Fields f(object);
  return {named<Step::Kind>(f.text("kind"), {"number", "dimension", "scalar", "add", "subtract",
                                             "multiply", "divide", "modulo", "least", "greatest"}),
          f.integer("value")};
}

Dimension read_dimension(PyObject* object) {
  const Fields f(object);
  Dimension dimension;
  dimension.text = f.text("text");
  dimension.steps = f.list("steps", read_step);
  return dimension;
}

TensorSpec read_tensor(PyObject* object) {
  const Fields f(object);
  TensorSpec spec;
  spec.name = f.text("name");
  spec.text = f.text("text");
  spec.before = f.list("before", read_dimension);
  spec.after = f.list("after", read_dimension);
  spec.batched = f.boolean("batched");
  spec.optional = f.boolean("optional");
  const int64_t dtype = f.integer("dtype");
  if (dtype >= 0) spec.dtype = static_cast<at::ScalarType>(dtype);
  spec.argument = f.integer("argument");
  spec.detached = f.boolean("detached");
  spec.any_shape = f.boolean("any_shape");
  return spec;
}

ScalarSpec read_scalar(PyObject* object) {
  const Fields f(object);
  return {named<ScalarSpec::Kind>(f.text("kind"), {"integer", "real", "boolean", "text"}),
          f.text("name"), static_cast<size_t>(f.integer("argument"))};
}

Reference read_reference(PyObject* object) {
  const Fields f(object);
  Reference reference;
  reference.origin = named<Reference::Origin>(
      f.text("origin"), {"grad", "tangent", "argument", "output", "result", "constant", "mask"});
  reference.index = f.integer("index");
  reference.result = f.integer("result");
  reference.optional = f.boolean("optional");
  reference.constant = constant(f["constant"]);
  return reference;
}

Program::OperatorCall read_call(PyObject* object) {
  const Fields f(object);
  Program::OperatorCall call{c10::OperatorName(f.text("operator"), f.text("overload")), {}, 1};
  call.arguments = f.list("arguments", read_reference);
  call.results = f.integer("results");
  return call;
}

Program read_program(PyObject* object) {
  const Fields f(object);
  Program program;
  program.calls = f.list("calls", read_call);
  program.results =
      f.list("results", [](PyObject* result) { return optional(result, read_reference); });
  return program;
}

Keeping read_keeping(PyObject* object) {
  const Fields f(object);
  return {c10::OperatorName(f.text("forward"), ""), static_cast<size_t>(f.integer("outputs")),
          read_program(f["backward"]), f.boolean("is_scaled")};
}

Rows read_rows(PyObject* object) {
  const Fields f(object);
  return {static_cast<size_t>(f.integer("argument")), f.list("reduced", integer),
          f.integer("least_length"), f.integer("least_rows"), f.integer("least_elements")};
}

NativeKernel read_kernel(PyObject* object) {
  const Fields f(object);
  return {reinterpret_cast<Kernel>(f.integer("function")), f.boolean("strided")};
}

Formula::Finish read_finish(PyObject* object) {
  const Fields f(object);
  Formula::Finish finish;
  finish.sums = f.list("sums", integer);
  finish.sums_batch = f.boolean("sums_batch");
  return finish;
}

Formula read_formula(PyObject* object) {
  const Fields f(object);
  Formula formula;
  formula.space = read_tensor(f["space"]);
  formula.alignments = f.list("alignments", [](PyObject* input) {
    return optional(input, [](PyObject* cores) { return list(cores, integer); });
  });
  formula.finishes = f.list("finishes", read_finish);
  for (const std::string& device : f.list("devices", text)) {
    (device == "cuda" ? formula.cuda : formula.cpu) = true;
  }
  return formula;
}

std::shared_ptr<Supply> read_supply(PyObject* object) {
  const Fields f(object);
  return std::make_shared<PythonSupply>(f["request"], f["complete"], f["keep"]);
}

}  // namespace

Definition read_definition(PyObject* dictionary) {
  const Fields f(dictionary);
  Definition definition;
  Signature& signature = definition.signature;
  signature.name = f.text("name");
  signature.called = f.text("called");
  signature.inputs = f.list("inputs", read_tensor);
  signature.outputs = f.list("outputs", read_tensor);
  signature.scalars = f.list("scalars", read_scalar);
  signature.dimensions = f.list("dimensions", text);
  signature.arguments = f.integer("arguments");
  signature.masked = f.boolean("masked");
  definition.backward = f.optional("backward", read_program);
  definition.jvp = f.optional("jvp", read_program);
  definition.keepings =
      f.list("keepings", [](PyObject* keeping) { return optional(keeping, read_keeping); });
  definition.rows = f.optional("rows", read_rows);
  definition.cpu = read_kernel(f["cpu"]);
  definition.cuda = read_kernel(f["cuda"]);
  definition.taken =
      named<Definition::Taken>(f.text("taken"), {"no", "yes", "with own derivative"});
  definition.formula = f.optional("formula", read_formula);
  if (definition.formula) definition.formula->find_places(signature);
  if (const auto supply = f.optional("supply", read_supply)) definition.supply = *supply;
  if (const auto known = f.optional("shortcuts", shortcuts_in)) definition.computation = *known;
  return definition;
}

}  // namespace pullback
