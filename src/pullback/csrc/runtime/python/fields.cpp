#include "fields.h"

#include "lazy.h"

#include <stdexcept>

namespace pullback {

namespace {

/// A Python tuple, read field by field in the order in which `bind/native.py` writes it.
class Fields {
 public:
  explicit Fields(PyObject* tuple) : tuple_(tuple) {
    if (!PyTuple_Check(tuple))
      throw std::invalid_argument("pullback_runtime: a tuple was expected");
  }

  PyObject* next() {
    if (position_ >= PyTuple_GET_SIZE(tuple_))
      throw std::invalid_argument("pullback_runtime: a field is missing");
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
    return nested().rest(read);
  }
  template <class Read>
  auto rest(Read read) {
    std::vector<decltype(read(*this))> result;
    while (position_ < PyTuple_GET_SIZE(tuple_)) result.push_back(read(*this));
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

/// A list of numbers, all of the type of the first.
c10::IValue constants(PyObject* tuple) {
  Fields items(tuple);
  PyObject* first = PyTuple_GET_SIZE(tuple) ? PyTuple_GET_ITEM(tuple, 0) : nullptr;
  if (first && PyFloat_Check(first))
    return items.rest([](Fields& item) { return PyFloat_AsDouble(item.next()); });
  if (!first || !PyBool_Check(first))
    return items.rest([](Fields& item) { return item.integer(); });
  c10::List<bool> flags;
  for (bool flag : items.rest([](Fields& item) { return item.boolean(); })) flags.push_back(flag);
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
  spec.detached = f.boolean();
  spec.any_shape = f.boolean();
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
  reference.origin = static_cast<Reference::Origin>(f.integer());
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

int64_t read_integer(Fields& f) { return f.integer(); }

Formula read_formula(Fields& f) {
  Formula formula;
  formula.space = read_tensor(f);
  formula.alignments = f.list([](Fields& inputs) {
    return inputs.optional([](Fields& cores) { return cores.rest(read_integer); });
  });
  formula.finishes = f.list([](Fields& outputs) {
    Fields output = outputs.nested();
    Formula::Finish finish;
    finish.sums = output.list(read_integer);
    finish.sums_batch = output.boolean();
    return finish;
  });
  for (const std::string& device : f.list([](Fields& devices) { return devices.text(); })) {
    (device == "cuda" ? formula.cuda : formula.cpu) = true;
  }
  return formula;
}

std::shared_ptr<Supply> read_supply(Fields& f) {
  PyObject* request = f.next();
  return std::make_shared<PythonSupply>(request, f.next());
}

}  // namespace

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
  definition.taken = static_cast<Definition::Taken>(f.integer());
  definition.formula = f.optional(read_formula);
  if (definition.formula) definition.formula->find_places(signature);
  if (const auto supply = f.optional(read_supply)) definition.supply = *supply;
  return definition;
}

}  // namespace pullback
