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

namespace {

using Numbers = c10::SmallVector<int64_t, 8>;

/// All that follows from the shapes and dtypes of a call.
struct Shortcut {
  struct Written {
    Numbers shape;  // as the operator returns it
    at::ScalarType dtype;
  };
  IndexKernel kernel;
  Numbers operands;  // arguments; behind them what is written
  std::vector<Written> written;
  Numbers strides, sizes, scalars;  // the last are arguments
  int64_t tasks, grain;
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

/// Runs the kernel; returns what it writes, nothing if it has something to say.
std::vector<at::Tensor> run_kernel(const Shortcut& shortcut, PyObject* const* arguments,
                                   size_t count) {
  std::vector<at::Tensor> outputs;
  for (const Shortcut::Written& written : shortcut.written)
    outputs.push_back(allocate(written.shape, written.dtype, at::kCPU));
  c10::SmallVector<char*, 8> data;
  for (const int64_t place : shortcut.operands) {
    const auto at = static_cast<size_t>(place);
    const at::Tensor& own = at < count ? tensor_in(arguments[at]) : outputs[at - count];
    data.push_back(static_cast<char*>(const_cast<void*>(own.const_data_ptr())));
  }
  const Scalars scalars = scalars_of(shortcut, arguments);
  const IndexCall call{data.data(), shortcut.strides.data(), shortcut.sizes.data(), scalars.data()};
  const WithoutGil without;
  if (run_tasks(shortcut.kernel, call, shortcut.tasks, shortcut.grain) != Status::ok)
    outputs.clear();
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
    const std::vector<at::Tensor> outputs = run_kernel(*shortcut, arguments, count);
    if (outputs.empty()) Py_RETURN_NONE;
    if (outputs.size() == 1) return THPVariable_Wrap(outputs[0]);
    PyObject* const tuple = PyTuple_New(static_cast<Py_ssize_t>(outputs.size()));
    for (size_t k = 0; tuple && k < outputs.size(); ++k)
      PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(k), THPVariable_Wrap(outputs[k]));
    return tuple;
  });
}

/// The call is (address, operands, ((shape, dtype), ...), strides, sizes, scalars, tasks, grain).
Shortcut read_shortcut(PyObject* call) {
  PyObject *address, *operands, *written, *strides, *sizes, *scalars;
  Shortcut shortcut{};
  long long tasks = 0, grain = 0;
  if (!PyArg_ParseTuple(call, "OOO!OOOLL", &address, &operands, &PyTuple_Type, &written, &strides,
                        &sizes, &scalars, &tasks, &grain))
    throw std::invalid_argument("pullback_runtime: this is no call");
  shortcut.kernel = reinterpret_cast<IndexKernel>(PyLong_AsVoidPtr(address));
  shortcut.operands = numbers_of(operands);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(written); ++k) {
    PyObject* const one = PyTuple_GET_ITEM(written, k);
    const auto dtype = static_cast<at::ScalarType>(number_of(PyTuple_GET_ITEM(one, 1)));
    shortcut.written.push_back({numbers_of(PyTuple_GET_ITEM(one, 0)), dtype});
  }
  shortcut.strides = numbers_of(strides);
  shortcut.sizes = numbers_of(sizes);
  shortcut.scalars = numbers_of(scalars);
  shortcut.tasks = tasks;
  shortcut.grain = grain;
  return shortcut;
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
    self.known[text] = std::make_shared<const Shortcut>(read_shortcut(arguments[1]));
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

PyObject* make_shortcuts_type() {
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
