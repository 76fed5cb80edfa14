#include "shortcuts.h"

#include "../kernel.h"
#include "../threads.h"
#include "caller.h"

#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace pullback {

namespace shortcuts {
namespace {

using Numbers = c10::SmallVector<int64_t, 8>;

/// All that follows from the shapes and dtypes of a call, in the words of `bind/runtime.py`.
struct Input {
  int64_t argument, unit;  // the latter becomes the last dimension; -1: it is read as it lies
  Numbers shape;           // of the tensor before that
};
struct Written {
  Numbers shape;
  at::ScalarType dtype;
};
struct Total {
  int64_t place;
  Numbers shape;
  int64_t summed;
};
struct LoopKernel {
  IndexKernel address;
  Numbers operands;
  std::vector<Written> written;
  Numbers strides, sizes;
  int64_t tasks, grain;
  std::vector<Total> totals;
};
struct Output {
  int64_t place, output;
};
struct Loops {
  std::vector<Input> inputs;
  std::vector<LoopKernel> kernels;
  std::vector<Output> outputs;
};
struct Shortcut {
  std::vector<Loops> loops;
  Numbers scalars;  // arguments
  int64_t outputs;
};

/// Calls by what their loops depend on.
struct Shortcuts {
  PyObject_HEAD
  Numbers counts;
  std::unordered_map<std::string, std::shared_ptr<const Shortcut>> known;
};
constexpr size_t most_known = 256;

int64_t number_of(PyObject* object) {
  const int64_t number = PyLong_AsLongLong(object);
  if (PyErr_Occurred()) throw std::invalid_argument("pullback_runtime: a number was expected");
  return number;
}

Numbers numbers_of(PyObject* tuple) {
  if (!PyTuple_Check(tuple)) throw std::invalid_argument("pullback_runtime: a tuple was expected");
  Numbers numbers;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple); ++k)
    numbers.push_back(number_of(PyTuple_GET_ITEM(tuple, k)));
  return numbers;
}

const at::Tensor& tensor_in(PyObject* object) {
  return reinterpret_cast<PyTensor*>(object)->tensor;
}

/// Writes what the loops of a call depend on; returns false for one that has no shortcut.
bool describe(const Shortcuts& self, PyObject* const* arguments, size_t count, std::string& text) {
  const auto add = [&](int64_t number) {
    text.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  add(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
  for (size_t k = 0; k < count; ++k) {
    PyObject* const object = arguments[k];
    if (is_plain_tensor(object)) {
      const at::Tensor& tensor = tensor_in(object);
      if (!tensor.is_cpu() || tensor.layout() != at::kStrided || !tensor.is_contiguous() ||
          tensor.is_neg() || tensor.is_conj())
        return false;
      text += 't';
      add(static_cast<int64_t>(tensor.scalar_type()));
      add(tensor.dim());
      for (const int64_t size : tensor.sizes()) add(size);
    } else if (object == Py_None) {
      text += 'n';
    } else if (PyLong_CheckExact(object)) {
      text += 'i';
      const auto place = static_cast<int64_t>(k);
      if (std::find(self.counts.begin(), self.counts.end(), place) != self.counts.end())
        add(number_of(object));
    } else if (PyFloat_CheckExact(object)) {
      text += 'f';
    } else if (PyList_CheckExact(object)) {
      // Which outputs are wanted.
      text += 'l';
      add(PyList_GET_SIZE(object));
      for (Py_ssize_t j = 0; j < PyList_GET_SIZE(object); ++j)
        text += PyList_GET_ITEM(object, j) == Py_True ? '1' : '0';
    } else {
      return false;
    }
  }
  return true;
}

Scalars scalars_of(const Shortcut& shortcut, PyObject* const* arguments) {
  Scalars scalars;
  for (const int64_t place : shortcut.scalars) {
    Scalar scalar{};
    PyObject* const object = arguments[place];
    if (PyFloat_CheckExact(object)) {
      scalar.real = PyFloat_AS_DOUBLE(object);
    } else {
      scalar.integer = number_of(object);
    }
    scalars.push_back(scalar);
  }
  return scalars;
}

at::Tensor laid_out(const at::Tensor& tensor, const Input& input) {
  return tensor.view(input.shape).movedim(input.unit, -1).contiguous();
}

at::Tensor added_up(const at::Tensor& chunks, const Total& total) {
  const at::Tensor parts = chunks.view(total.shape);
  const bool one = parts.size(total.summed) == 1;
  return one ? parts.squeeze(total.summed) : parts.sum(at::IntArrayRef(total.summed));
}

/// Runs a kernel; returns whether it has nothing to say.
bool run_kernel(const LoopKernel& kernel, const Scalars& scalars, std::vector<at::Tensor>& tensors) {
  for (const Written& written : kernel.written)
    tensors.push_back(allocate(written.shape, written.dtype, at::kCPU));
  c10::SmallVector<char*, 8> data;
  for (const int64_t place : kernel.operands) {
    const at::Tensor& tensor = tensors[static_cast<size_t>(place)];
    data.push_back(static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())));
  }
  const IndexCall call{data.data(), kernel.strides.data(), kernel.sizes.data(), scalars.data()};
  if (run_tasks(kernel.address, call, kernel.tasks, kernel.grain) != Status::ok) return false;
  for (const Total& total : kernel.totals)
    tensors.push_back(added_up(tensors[static_cast<size_t>(total.place)], total));
  return true;
}

/// Runs all loops; returns the outputs, nothing if a kernel has something to say.
std::vector<at::Tensor> run_loops(const Shortcut& shortcut, PyObject* const* arguments) {
  std::vector<at::Tensor> outputs(static_cast<size_t>(shortcut.outputs));
  const Scalars scalars = scalars_of(shortcut, arguments);
  const WithoutGil without;
  for (const Loops& loops : shortcut.loops) {
    std::vector<at::Tensor> tensors;
    for (const Input& input : loops.inputs) {
      const at::Tensor& given = tensor_in(arguments[input.argument]);
      tensors.push_back(input.unit < 0 ? given : laid_out(given, input));
    }
    for (const LoopKernel& kernel : loops.kernels)
      if (!run_kernel(kernel, scalars, tensors)) return {};
    for (const Output& one : loops.outputs)
      outputs[static_cast<size_t>(one.output)] = tensors[static_cast<size_t>(one.place)];
  }
  return outputs;
}

PyObject* run(PyObject* object, PyObject* const* arguments, Py_ssize_t given) {
  return guarded([&]() -> PyObject* {
    auto& self = *reinterpret_cast<Shortcuts*>(object);
    const auto count = static_cast<size_t>(given);
    static thread_local std::string text;
    text.clear();
    if (!describe(self, arguments, count, text)) Py_RETURN_NONE;
    const auto found = self.known.find(text);
    if (found == self.known.end()) Py_RETURN_NONE;
    // Another thread may forget it while the kernel runs.
    const std::shared_ptr<const Shortcut> shortcut = found->second;
    const std::vector<at::Tensor> outputs = run_loops(*shortcut, arguments);
    if (outputs.empty()) Py_RETURN_NONE;
    if (outputs.size() == 1) return THPVariable_Wrap(outputs[0]);
    PyObject* const tuple = PyTuple_New(static_cast<Py_ssize_t>(outputs.size()));
    for (size_t k = 0; tuple && k < outputs.size(); ++k) {
      const auto at = static_cast<Py_ssize_t>(k);
      // One that is not wanted is undefined, which is None.
      PyTuple_SET_ITEM(tuple, at, THPVariable_Wrap(outputs[k]));
    }
    return tuple;
  });
}

PyObject* item(PyObject* tuple, Py_ssize_t place) {
  if (!PyTuple_Check(tuple) || place >= PyTuple_GET_SIZE(tuple))
    throw std::invalid_argument("pullback_runtime: this is no call");
  return PyTuple_GET_ITEM(tuple, place);
}

template <class One, class Read>
std::vector<One> each_in(PyObject* tuple, Read read) {
  std::vector<One> found;
  for (Py_ssize_t k = 0; PyTuple_Check(tuple) && k < PyTuple_GET_SIZE(tuple); ++k)
    found.push_back(read(PyTuple_GET_ITEM(tuple, k)));
  return found;
}

Input input_of(PyObject* one) {
  return {number_of(item(one, 0)), number_of(item(one, 1)), numbers_of(item(one, 2))};
}
Written written_of(PyObject* one) {
  return {numbers_of(item(one, 0)), static_cast<at::ScalarType>(number_of(item(one, 1)))};
}
Total total_of(PyObject* one) {
  return {number_of(item(one, 0)), numbers_of(item(one, 1)), number_of(item(one, 2))};
}
LoopKernel kernel_of(PyObject* one) {
  return {reinterpret_cast<IndexKernel>(PyLong_AsVoidPtr(item(one, 0))),
          numbers_of(item(one, 1)),
          each_in<Written>(item(one, 2), written_of),
          numbers_of(item(one, 3)),
          numbers_of(item(one, 4)),
          number_of(item(one, 5)),
          number_of(item(one, 6)),
          each_in<Total>(item(one, 7), total_of)};
}
Output output_of(PyObject* one) { return {number_of(item(one, 0)), number_of(item(one, 1))}; }
Loops loops_of(PyObject* one) {
  return {each_in<Input>(item(one, 0), input_of), each_in<LoopKernel>(item(one, 1), kernel_of),
          each_in<Output>(item(one, 2), output_of)};
}
Shortcut shortcut_of(PyObject* call) {
  return {each_in<Loops>(item(call, 0), loops_of), numbers_of(item(call, 1)),
          number_of(item(call, 2))};
}

PyObject* add(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 2 || !PyTuple_Check(arguments[0]) || !PyTuple_Check(arguments[1]))
      throw std::invalid_argument("pullback_runtime: two tuples were expected");
    auto& self = *reinterpret_cast<Shortcuts*>(object);
    auto* const given = reinterpret_cast<PyTupleObject*>(arguments[0]);
    std::string text;
    if (!describe(self, given->ob_item, static_cast<size_t>(PyTuple_GET_SIZE(arguments[0])), text))
      Py_RETURN_NONE;
    if (self.known.size() >= most_known) self.known.clear();
    self.known[text] = std::make_shared<const Shortcut>(shortcut_of(arguments[1]));
    Py_RETURN_NONE;
  });
}

PyObject* new_shortcuts(PyTypeObject* type, PyObject* arguments, PyObject*) {
  return guarded([&]() -> PyObject* {
    PyObject* counts = nullptr;
    if (!PyArg_ParseTuple(arguments, "O", &counts)) return nullptr;
    Numbers numbers = numbers_of(counts);
    PyObject* const object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    auto& self = *reinterpret_cast<Shortcuts*>(object);
    new (&self.counts) Numbers(std::move(numbers));
    new (&self.known) decltype(self.known)();
    return object;
  });
}

void delete_shortcuts(PyObject* object) {
  auto& self = *reinterpret_cast<Shortcuts*>(object);
  PyTypeObject* const type = Py_TYPE(object);
  std::destroy_at(&self.counts);
  std::destroy_at(&self.known);
  type->tp_free(object);
  Py_DECREF(type);
}

template <class Function>
PyCFunction as_method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace
}  // namespace shortcuts

PyObject* make_shortcuts_type() {
  using namespace shortcuts;
  static PyMethodDef methods[] = {
      {"add", as_method(add), METH_FASTCALL, "Add all calls like one."},
      {"run", as_method(run), METH_FASTCALL, "Return what a known call computes, or None."},
      {nullptr, nullptr, 0, nullptr}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_shortcuts)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(delete_shortcuts)},
                                {Py_tp_methods, methods},
                                {0, nullptr}};
  static PyType_Spec spec = {"pullback_runtime.Shortcuts", sizeof(Shortcuts), 0, Py_TPFLAGS_DEFAULT,
                             slots};
  return PyType_FromSpec(&spec);
}

}  // namespace pullback
