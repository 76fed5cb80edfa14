#include "shortcuts.h"

#include "../entry_order.h"
#include "../kernel.h"
#include "../threads.h"
#include "caller.h"

#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/sum.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace pullback {

// The files of the runtime are compiled together.
namespace shortcuts {

namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

/// A part of a tensor: an argument, or behind these one that was made.
struct View {
  size_t tensor;
  bool whole;
  Ints shape, strides;
  int64_t offset;
};

/// One kernel, or an operation between them.
struct Step {
  struct Written {
    Ints shape;
    at::ScalarType dtype;
  };
  std::vector<Written> written;     // becomes the next tensors
  void* kernel = nullptr;           // an `IndexKernel`, on a GPU an `IndexLauncher`
  Ints operands, offsets, strides;  // tensors, and bytes
  Ints sizes, scalars;              // the last are arguments
  int64_t tasks = 0, share = 0;     // as `KernelCall` of bind/loops/own_call.py says
  // Without a kernel: an operation along some dimensions of a view, PyTorch's or the sorting.
  std::optional<View> view;
  enum class Operation { copy, sum, cumsum, cumprod, flip, pad, sort } operation{};
  Ints dimensions;  // to sort: how many batches, the shape of their entries, how many rows
  at::ScalarType dtype{};
  Ints last;  // the tensors that no later step reads
};

/// All that follows from the shapes and dtypes of a call.
struct Shortcut {
  std::vector<Step> steps;
  std::vector<std::optional<View>> outputs;  // nothing: not wanted
};

/// One call that is known.
class ShortcutCall {
 public:
  ShortcutCall(const Shortcut& shortcut, Arguments arguments, at::Device device)
      : shortcut_(shortcut), arguments_(arguments), device_(device) {
    if (!device.is_cpu()) on_.emplace(device);
  }

  /// Runs the steps; returns false if a kernel has something to say.
  bool run() {
    for (const Step& step : shortcut_.steps) {
      for (const Step::Written& written : step.written)
        made_.push_back(allocate(written.shape, written.dtype, device_));
      if (step.kernel && !launch(step)) return false;
      if (step.view) made_.push_back(operate(step));
      for (const int64_t tensor : step.last) made_[tensor - arguments_.size()].reset();
    }
    return true;
  }

  at::Tensor output(const std::optional<View>& view) const {
    return view ? look(*view) : at::Tensor();
  }

 private:
  const at::Tensor& tensor(size_t place) const {
    return place < arguments_.size() ? arguments_[place].toTensor()
                                     : made_[place - arguments_.size()];
  }

  at::Tensor look(const View& view) const {
    const at::Tensor& own = tensor(view.tensor);
    if (view.whole) return own;
    const int64_t offset = own.storage_offset() + view.offset;
    return at::native::as_strided_tensorimpl(own, view.shape, view.strides, offset);
  }

  at::Tensor operate(const Step& step) const {
    const at::Tensor view = look(*step.view);
    switch (step.operation) {
      case Step::Operation::sum: return at::sum(view, step.dimensions, false, step.dtype);
      case Step::Operation::cumsum: return at::cumsum(view, step.dimensions[0], step.dtype);
      case Step::Operation::cumprod: return at::cumprod(view, step.dimensions[0], step.dtype);
      case Step::Operation::flip: return at::flip(view, step.dimensions);
      case Step::Operation::pad: return at::constant_pad_nd(view, step.dimensions);
      case Step::Operation::sort: {
        const Ints& given = step.dimensions;
        return order_entries(view, given.front(), Ints(given.begin() + 1, given.end() - 1),
                             given.back());
      }
      default: return allocate(view.sizes(), step.dtype, device_).copy_(view);
    }
  }

  bool launch(const Step& step) const {
    c10::SmallVector<char*, 8> data;
    for (size_t k = 0; k < step.operands.size(); ++k) {
      const void* const own = tensor(step.operands[k]).const_data_ptr();
      data.push_back(static_cast<char*>(const_cast<void*>(own)) + step.offsets[k]);
    }
    Scalars scalars;
    for (const int64_t place : step.scalars) {
      const c10::IValue& value = arguments_[place];
      Scalar scalar{};
      if (value.isDouble()) {
        scalar.real = value.toDouble();
      } else {
        scalar.integer = value.isBool() ? value.toBool() : value.toInt();
      }
      scalars.push_back(scalar);
    }
    const IndexCall call{data.data(), step.strides.data(), step.sizes.data(), scalars.data()};
    if (!on_) {
      const auto kernel = reinterpret_cast<IndexKernel>(step.kernel);
      return run_tasks(kernel, call, step.tasks, step.share) == Status::ok;
    }
    // What a launcher says, the call in Python says again.
    char message[256];
    const IndexLaunch launch{call, step.tasks, step.share, on_->stream};
    return reinterpret_cast<IndexLauncher>(step.kernel)(&launch, message, sizeof message) ==
           Status::ok;
  }

  const Shortcut& shortcut_;
  const Arguments arguments_;
  const at::Device device_;
  std::optional<OnDevice> on_;  // a GPU
  c10::SmallVector<at::Tensor, 8> made_;
};

/// Calls by what their loops depend on.
class KnownCalls final : public Computation {
 public:
  explicit KnownCalls(Ints counts) : counts_(std::move(counts)) {}

  bool runs_on(c10::DeviceType device) const override {
    return device == c10::DeviceType::CPU || device == c10::DeviceType::CUDA;
  }

  bool call(const Signature& signature, c10::DeviceType, torch::jit::Stack& stack) const override {
    c10::SmallVector<at::Tensor, 4> outputs;
    if (!compute(torch::jit::last(stack, signature.arguments), outputs)) return false;
    torch::jit::drop(stack, signature.arguments);
    for (at::Tensor& output : outputs) stack.emplace_back(std::move(output));
    return true;
  }

  /// Returns false for a call that is not known, or of which a kernel has something to say.
  bool compute(Arguments arguments, c10::SmallVector<at::Tensor, 4>& outputs) const {
    const std::shared_ptr<const Shortcut> shortcut = find(arguments);
    if (!shortcut) return false;
    ShortcutCall call(*shortcut, arguments, device_of(arguments));
    if (!call.run()) return false;
    for (const auto& view : shortcut->outputs) outputs.push_back(call.output(view));
    return true;
  }

  void add(Arguments arguments, std::shared_ptr<const Shortcut> shortcut) {
    std::string text;
    if (!describe(arguments, text)) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (known_.size() >= most_known) known_.clear();
    known_[text] = std::move(shortcut);
  }

  void clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    known_.clear();
  }

 private:
  static constexpr size_t most_known = 256;

  /// The device of the first tensor: all are there.
  static at::Device device_of(Arguments arguments) {
    for (const c10::IValue& value : arguments)
      if (value.isTensor() && value.toTensor().defined()) return value.toTensor().device();
    return at::kCPU;
  }

  std::shared_ptr<const Shortcut> find(Arguments arguments) const {
    static thread_local std::string text;
    text.clear();
    if (!describe(arguments, text)) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(text);
    return found == known_.end() ? nullptr : found->second;
  }

  /// Writes what the loops of a call depend on; returns false for one that has no shortcut.
  bool describe(Arguments arguments, std::string& text) const {
    const auto add = [&](int64_t number) {
      text.append(reinterpret_cast<const char*>(&number), sizeof number);
    };
    add(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
    const at::Device device = device_of(arguments);
    add(static_cast<int64_t>(device.type()));
    add(device.index());
    for (size_t k = 0; k < arguments.size(); ++k) {
      const c10::IValue& value = arguments[k];
      if (value.isTensor() && value.toTensor().defined()) {
        const at::Tensor& tensor = value.toTensor();
        if (tensor.device() != device || tensor.layout() != at::kStrided || tensor.is_neg() ||
            tensor.is_conj())
          return false;
        const bool contiguous = tensor.is_contiguous();
        text += contiguous ? 'c' : 's';
        // Kernels of a GPU may read 16 bytes at a time.
        if (!device.is_cpu())
          text += reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 ? 'u' : 'a';
        add(static_cast<int64_t>(tensor.scalar_type()));
        add(tensor.dim());
        for (const int64_t size : tensor.sizes()) add(size);
        if (!contiguous)
          for (const int64_t stride : tensor.strides()) add(stride);
      } else if (value.isTensor() || value.isNone()) {
        text += 'n';
      } else if (value.isInt()) {
        text += 'i';
        if (std::find(counts_.begin(), counts_.end(), static_cast<int64_t>(k)) != counts_.end())
          add(value.toInt());
      } else if (value.isDouble()) {
        text += 'f';
      } else if (value.isBool()) {
        text += 'b';
      } else if (value.isBoolList()) {
        text += 'l';
        for (const bool flag : value.toBoolList()) text += flag ? '1' : '0';
      } else {
        return false;
      }
    }
    return true;
  }

  const Ints counts_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Shortcut>> known_;
};

// What Python gives.

struct Shortcuts {
  PyObject_HEAD
  std::shared_ptr<KnownCalls> calls;
};

[[noreturn]] void expect(const char* what) {
  throw std::invalid_argument(std::string("pullback_runtime: expected: ") + what);
}

int64_t number_of(PyObject* object) {
  const int64_t number = PyLong_AsLongLong(object);
  if (PyErr_Occurred()) expect("a number");
  return number;
}

template <class Read>
void each(PyObject* tuple, Read read) {
  if (!PyTuple_Check(tuple)) expect("a tuple");
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple); ++k) read(PyTuple_GET_ITEM(tuple, k));
}

Ints numbers_of(PyObject* tuple) {
  Ints numbers;
  each(tuple, [&](PyObject* item) { numbers.push_back(number_of(item)); });
  return numbers;
}

c10::IValue value_of(PyObject* object) {
  if (is_plain_tensor(object)) return reinterpret_cast<PyTensor*>(object)->tensor;
  if (object == Py_None) return {};
  if (PyBool_Check(object)) return object == Py_True;
  if (PyLong_Check(object)) return number_of(object);
  if (PyFloat_Check(object)) return PyFloat_AS_DOUBLE(object);
  if (!PyList_Check(object)) expect("an argument");
  c10::List<bool> flags;
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(object); ++k)
    flags.push_back(PyList_GET_ITEM(object, k) == Py_True);
  return flags;
}

/// (tensor, None), or (tensor, (shape, strides, offset)).
View read_view(PyObject* object) {
  View view{};
  PyObject *part, *shape, *strides;
  long long tensor = 0, offset = 0;
  if (!PyArg_ParseTuple(object, "LO", &tensor, &part)) expect("a view");
  view.tensor = tensor;
  view.whole = part == Py_None;
  if (view.whole) return view;
  if (!PyArg_ParseTuple(part, "OOL", &shape, &strides, &offset)) expect("a part");
  view.shape = numbers_of(shape);
  view.strides = numbers_of(strides);
  view.offset = offset;
  return view;
}

/// (written, last, launch or None, operation or None): as `NativeStep` of runtime.py.
Step read_step(PyObject* object) {
  Step step;
  PyObject *written, *last, *launch, *operation;
  if (!PyArg_ParseTuple(object, "OOOO", &written, &last, &launch, &operation)) expect("a step");
  each(written, [&](PyObject* one) {
    PyObject* shape;
    int dtype = 0;
    if (!PyArg_ParseTuple(one, "Oi", &shape, &dtype)) expect("a shape and a dtype");
    step.written.push_back({numbers_of(shape), static_cast<at::ScalarType>(dtype)});
  });
  step.last = numbers_of(last);
  if (launch != Py_None) {
    PyObject *address, *operands, *offsets, *strides, *sizes, *scalars;
    long long tasks = 0, share = 0;
    if (!PyArg_ParseTuple(launch, "OOOOOOLL", &address, &operands, &offsets, &strides, &sizes,
                          &scalars, &tasks, &share))
      expect("a launch");
    step.kernel = PyLong_AsVoidPtr(address);
    step.operands = numbers_of(operands);
    step.offsets = numbers_of(offsets);
    step.strides = numbers_of(strides);
    step.sizes = numbers_of(sizes);
    step.scalars = numbers_of(scalars);
    step.tasks = tasks;
    step.share = share;
  }
  if (operation != Py_None) {
    PyObject *view, *dimensions;
    int kind = 0, dtype = 0;
    if (!PyArg_ParseTuple(operation, "iOOi", &kind, &view, &dimensions, &dtype))
      expect("an operation");
    step.operation = static_cast<Step::Operation>(kind);
    step.view = read_view(view);
    step.dimensions = numbers_of(dimensions);
    step.dtype = static_cast<at::ScalarType>(dtype);
  }
  return step;
}

std::vector<c10::IValue> values_of(PyObject* tuple) {
  std::vector<c10::IValue> values;
  each(tuple, [&](PyObject* object) { values.push_back(value_of(object)); });
  return values;
}

/// add(arguments, (steps, outputs))
PyObject* add(PyObject* object, PyObject* const* given, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    PyObject *steps, *outputs;
    if (count != 2 || !PyArg_ParseTuple(given[1], "OO", &steps, &outputs)) expect("a call");
    const std::vector<c10::IValue> arguments = values_of(given[0]);
    auto shortcut = std::make_shared<Shortcut>();
    each(steps, [&](PyObject* step) { shortcut->steps.push_back(read_step(step)); });
    each(outputs, [&](PyObject* view) {
      shortcut->outputs.emplace_back();
      if (view != Py_None) shortcut->outputs.back() = read_view(view);
    });
    reinterpret_cast<Shortcuts*>(object)->calls->add(arguments, std::move(shortcut));
    Py_RETURN_NONE;
  });
}

/// run(arguments) -> whether such a call is known, and has been made
PyObject* run(PyObject* object, PyObject* given) {
  return guarded([&]() -> PyObject* {
    const std::vector<c10::IValue> arguments = values_of(given);
    c10::SmallVector<at::Tensor, 4> outputs;
    bool ran = false;
    {
      const WithoutGil without;
      ran = reinterpret_cast<Shortcuts*>(object)->calls->compute(arguments, outputs);
    }
    return PyBool_FromLong(ran);
  });
}

PyObject* clear(PyObject* object, PyObject*) {
  reinterpret_cast<Shortcuts*>(object)->calls->clear();
  Py_RETURN_NONE;
}

PyObject* new_shortcuts(PyTypeObject* type, PyObject* arguments, PyObject*) {
  return guarded([&]() -> PyObject* {
    PyObject* counts = nullptr;
    if (!PyArg_ParseTuple(arguments, "O", &counts)) return nullptr;
    auto calls = std::make_shared<KnownCalls>(numbers_of(counts));
    PyObject* const object = type->tp_alloc(type, 0);
    if (object)
      new (&reinterpret_cast<Shortcuts*>(object)->calls)
          std::shared_ptr<KnownCalls>(std::move(calls));
    return object;
  });
}

void delete_shortcuts(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  std::destroy_at(&reinterpret_cast<Shortcuts*>(object)->calls);
  type->tp_free(object);
  Py_DECREF(type);
}

PyTypeObject* type_of_all = nullptr;

}  // namespace

}  // namespace shortcuts

std::shared_ptr<const Computation> shortcuts_in(PyObject* object) {
  if (Py_TYPE(object) != shortcuts::type_of_all) shortcuts::expect("shortcuts");
  return reinterpret_cast<shortcuts::Shortcuts*>(object)->calls;
}

PyObject* make_shortcuts_type() {
  using namespace shortcuts;
  static PyMethodDef methods[] = {
      {"add", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(add)), METH_FASTCALL,
       "Add all calls like one."},
      {"run", run, METH_O, "Make a call that is known, for its time."},
      {"clear", clear, METH_NOARGS, "Forget them."},
      {nullptr, nullptr, 0, nullptr}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_shortcuts)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(delete_shortcuts)},
                                {Py_tp_methods, methods},
                                {0, nullptr}};
  static PyType_Spec spec = {"pullback_runtime.Shortcuts", sizeof(Shortcuts), 0, Py_TPFLAGS_DEFAULT,
                             slots};
  PyObject* const type = PyType_FromSpec(&spec);
  type_of_all = reinterpret_cast<PyTypeObject*>(type);
  return type;
}

}  // namespace pullback
