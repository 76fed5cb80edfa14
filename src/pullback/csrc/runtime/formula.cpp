/// One call of a formula operator: PyTorch's TensorIterator runs the compiled loop over the space.
#include "kernel.h"
#include "parts.h"
#include "short_rows.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

namespace pullback {

namespace {

/// Returns `tensor` with the dimensions of the space: permuted, and of size 1 where it has none.
at::Tensor aligned(const at::Tensor& tensor, const TensorSpec& spec, const TensorSpec& space,
                   const std::vector<int64_t>& alignment, size_t batch) {
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  Ints shape(alignment.size() + batch, 1), steps(alignment.size() + batch, 0);
  each_aligned(spec, space, alignment, sizes.size(), batch, [&](size_t to, size_t from) {
    shape[to] = sizes[from];
    steps[to] = strides[from];
  });
  if (sizes.equals(shape) && strides.equals(steps)) return tensor;
  // Called directly: through the dispatcher it takes three times as long.
  return at::native::as_strided_tensorimpl(tensor, shape, steps);
}

class FormulaCall {
 public:
  using Outputs = c10::SmallVector<at::Tensor, 2>;

  FormulaCall(const Definition& definition, c10::DeviceType device,
              c10::ArrayRef<c10::IValue> arguments)
      : signature_(definition.signature),
        formula_(*definition.formula),
        supply_(*definition.supply),
        device_(device),
        arguments_(arguments),
        sizes_(solve(signature_, arguments)),
        space_(shape_of(formula_.space, signature_, sizes_, arguments)),
        numel_(
            std::accumulate(space_.begin(), space_.end(), int64_t{1}, std::multiplies<int64_t>())),
        outputs_(signature_.outputs.size()) {}

  Outputs run() && {
    const Loops::Key key = this->key();
    if (!key.wanted) return std::move(outputs_);
    const CompiledLoop* loop = formula_.loops->find(key);
    if (C10_UNLIKELY(!loop)) loop = &supply_.loop(signature_, formula_, key);
    wanted_ = loop->wanted;
    address_ = loop->address;
    gather(loop->used);
    if (device_ == c10::DeviceType::CPU && numel_ < at::internal::GRAIN_SIZE && flat()) {
      run_flat();
    } else {
      if (device_ == c10::DeviceType::CPU) join_rows();
      sums_many() ? sum_parts() : iterate();
    }
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (!(key.wanted >> k & 1)) {
        outputs_[k].reset();
      } else {
        finish(k);
      }
    }
    if (C10_UNLIKELY(divided_)) {
      fail(
          "division-by-zero [PB136]", signature_, "a whole number is divided by zero",
          "where(...) chooses between values that are both computed, so let it choose the divisor: "
          "n // where(d != 0, d, 1)");
    }
    return std::move(outputs_);
  }

 private:
  Loops::Key key() const {
    Loops::Key key{0, 0, sizes_.dtype, device_};
    for (size_t k = 0; k < outputs_.size(); ++k)
      key.wanted |= uint64_t{wanted(signature_, arguments_, k)} << k;
    for (size_t i = 0; i < signature_.inputs.size(); ++i)
      key.present |= uint64_t{input(i).defined()} << i;
    return key;
  }

  const at::Tensor& input(size_t i) const {
    return tensor_of(arguments_[signature_.inputs[i].argument]);
  }

  at::TensorOptions dtype_of(size_t i) const {
    return at::TensorOptions()
        .dtype(signature_.inputs[i].dtype.value_or(sizes_.dtype))
        .device(sizes_.device);
  }

  /// The line's scalars, and the flag that a loop sets at a division by zero.
  Scalars scalars() {
    Scalars scalars = scalars_of(signature_, arguments_);
    scalars.push_back({});
    scalars.back().divided = &divided_;
    return scalars;
  }

  at::ScalarType dtype(size_t output) const {
    return signature_.outputs[output].dtype.value_or(sizes_.dtype);
  }

  /// Collects the inputs that the loop reads, each in a form that broadcasts to the space.
  void gather(uint64_t used) {
    // Reserved in full: `inputs_` points into it. One each for `join_rows`, and one for `cover`.
    views_.reserve(3 * signature_.inputs.size() + 1);
    for (size_t i = 0; i < signature_.inputs.size(); ++i) {
      if (!(used >> i & 1)) continue;
      const at::Tensor* tensor = &input(i);
      if (C10_UNLIKELY(!tensor->defined())) {
        inputs_.push_back(&keep(at::zeros({}, dtype_of(i))));
        continue;
      }
      if (C10_UNLIKELY(tensor->is_conj() || tensor->is_neg()))
        tensor = &keep(tensor->resolve_conj().resolve_neg());
      if (const auto& alignment = formula_.alignments[i]) {
        tensor = &keep(aligned(*tensor, signature_.inputs[i], formula_.space, *alignment,
                               sizes_.batch.size()));
      }
      inputs_.push_back(tensor);
    }
  }

  const at::Tensor& keep(at::Tensor tensor) {
    views_.push_back(std::move(tensor));
    return views_.back();
  }

  /// Whether the loop can run over all elements as they lie in memory.
  bool flat() const {
    for (const at::Tensor* input : inputs_) {
      if (input->numel() != 1 && !(input->sizes().equals(space_) && input->is_contiguous()))
        return false;
    }
    return true;
  }

  /// Runs the loop once, which for a small call takes a third of the time of an iterator.
  void run_flat() {
    c10::SmallVector<char*, 8> data;
    Ints strides;
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (!(wanted_ >> k & 1)) continue;
      outputs_[k] = allocate(space_, dtype(k), sizes_.device);
      data.push_back(static_cast<char*>(outputs_[k].mutable_data_ptr()));
      strides.push_back(static_cast<int64_t>(outputs_[k].element_size()));
    }
    for (const at::Tensor* input : inputs_) {
      data.push_back(static_cast<char*>(const_cast<void*>(input->const_data_ptr())));
      strides.push_back(input->numel() == 1 ? 0 : static_cast<int64_t>(input->element_size()));
    }
    const Scalars scalars = this->scalars();
    if (numel_)
      reinterpret_cast<Loop>(address_)(data.data(), strides.data(), numel_, scalars.data());
  }

  /// Lets PyTorch broadcast, choose the outputs' strides, and divide the work among threads.
  void iterate() {
    at::TensorIteratorConfig config;
    // The outputs are new, and `solve` has checked dtypes and devices.
    config.set_check_mem_overlap(false).check_all_same_dtype(false).check_all_same_device(false);
    config.declare_static_dtype_and_device(sizes_.dtype, sizes_.device);
    config.resize_outputs(!inputs_.empty());
    if (!inputs_.empty()) cover();
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (!(wanted_ >> k & 1)) continue;
      if (inputs_.empty()) {
        outputs_[k] = allocate(space_, dtype(k), sizes_.device);
      } else if (dtype(k) != sizes_.dtype) {
        // The iterator allocates outputs of one dtype only; it resizes this one, with the others'
        // strides.
        outputs_[k] = allocate({0}, dtype(k), sizes_.device);
      }
      config.add_output(outputs_[k]);
    }
    for (const at::Tensor* input : inputs_) config.add_const_input(*input);
    at::TensorIterator iterator = config.build();
    for (size_t k = 0, operand = 0; k < outputs_.size(); ++k) {
      if (!(wanted_ >> k & 1)) continue;
      if (!outputs_[k].defined()) outputs_[k] = iterator.output(operand);
      ++operand;
    }
    const Scalars scalars = this->scalars();
    if (!numel_) return;
    if (device_ == c10::DeviceType::CPU) {
      iterator.for_each(ShortRows(reinterpret_cast<Loop>(address_), scalars.data(), iterator));
    } else {
      const OnDevice on(sizes_.device);
      launch(iterator, scalars, on.stream);
    }
  }

  /// Repeats inputs that the last two dimensions alone have, if these are short: a bias of three
  /// channels, of five elements each. Then both are one row, which a loop is called for less often.
  void join_rows() {
    const size_t rank = space_.size();
    if (rank < 3 || numel_ < at::internal::GRAIN_SIZE) return;
    const int64_t rows = space_[rank - 2], width = space_[rank - 1];
    if (rows == 1 || width == 1 || width >= short_row || rows * width > joined_row) return;
    for (const at::Tensor* input : inputs_) {
      if (is_repeated(*input, rows, width)) continue;
      const bool is_one = size_of(*input, 1) == 1 && size_of(*input, 2) == 1;
      if (!is_one && (size_of(*input, 1) != width || size_of(*input, 2) != rows)) return;
    }
    for (const at::Tensor*& input : inputs_) {
      if (!is_repeated(*input, rows, width)) continue;
      Ints shape(static_cast<size_t>(std::max<int64_t>(input->dim(), 2)), 1);
      shape[shape.size() - 2] = rows;
      shape.back() = width;
      input = &keep(input->expand(shape).contiguous());
    }
  }

  static int64_t size_of(const at::Tensor& tensor, int64_t from_last) {
    return tensor.dim() < from_last ? 1 : tensor.size(-from_last);
  }

  static bool is_repeated(const at::Tensor& input, int64_t rows, int64_t width) {
    const int64_t many = size_of(input, 1) * size_of(input, 2);
    return input.numel() == many && many > 1 && many < rows * width;
  }

  /// Whether results are summed that no cache holds, and inputs lie as new outputs do.
  bool sums_many() const {
    if (device_ != c10::DeviceType::CPU || numel_ < 2 * in_cache || inputs_.empty()) return false;
    for (const at::Tensor* input : inputs_)
      if (input->numel() == numel_ && !input->is_contiguous()) return false;
    for (size_t k = 0; k < outputs_.size(); ++k)
      if (wanted_ >> k & 1 && is_small(k)) return true;
    return false;
  }

  Ints sums(size_t k) const { return formula_.summed(k, sizes_.batch.size()); }

  /// Whether an output is summed over far more than it has.
  bool is_small(size_t k) const {
    int64_t many = 1;
    for (const int64_t d : sums(k)) many *= space_[static_cast<size_t>(d)];
    return many >= fewest_summed;
  }

  /// Goes through the space in parts, and sums what each has of a summed result.
  ///
  /// As a whole, these would be written to memory and read back.
  void sum_parts() {
    Outputs parts(outputs_.size());
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (!(wanted_ >> k & 1)) continue;
      Ints shape = space_;
      for (const int64_t d : sums(k)) shape[static_cast<size_t>(d)] = 1;
      if (!is_small(k)) {
        outputs_[k] = allocate(space_, dtype(k), sizes_.device);
      } else {
        parts[k] = allocate({in_cache}, dtype(k), sizes_.device);
        outputs_[k] = at::zeros(shape, at::TensorOptions().dtype(at::kDouble));
      }
    }
    const Scalars scalars = this->scalars();
    each_part(space_, in_cache, [&](const Part& part) { add_part(part, parts, scalars); });
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (!parts[k].defined()) continue;
      outputs_[k] = outputs_[k].squeeze(sums(k)).to(dtype(k));
      summed_ |= uint64_t{1} << k;
    }
  }

  /// Computes a part, and adds the sums of what is in `parts` to the outputs.
  void add_part(const Part& part, const Outputs& parts, const Scalars& scalars) {
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false).check_all_same_dtype(false).check_all_same_device(false);
    config.declare_static_dtype_and_device(sizes_.dtype, sizes_.device).resize_outputs(false);
    Outputs written(outputs_.size());
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (!(wanted_ >> k & 1)) continue;
      const bool summed = parts[k].defined();
      const int64_t many = c10::multiply_integers(part.extent);
      written[k] =
          summed ? parts[k].narrow(0, 0, many).view(part.extent) : part_of(outputs_[k], part);
      config.add_output(written[k]);
    }
    for (const at::Tensor* input : inputs_) config.add_owned_const_input(part_of(*input, part));
    at::TensorIterator iterator = config.build();
    iterator.for_each(ShortRows(reinterpret_cast<Loop>(address_), scalars.data(), iterator));
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (!parts[k].defined()) continue;
      const auto type = dtype(k) == at::kDouble ? at::kDouble : at::kFloat;
      part_of(outputs_[k], part).add_(at::sum(written[k], sums(k), /*keepdim=*/true, type));
    }
  }

  /// Expands one input to the space if it is larger than what the inputs broadcast to.
  ///
  /// `declare_static_shape` would not do: then no input may broadcast, and no output may be
  /// resized.
  void cover() {
    for (size_t d = 1; d <= space_.size(); ++d) {
      const auto covers = [&](const at::Tensor* input) {
        const auto sizes = input->sizes();
        return sizes.size() >= d && sizes[sizes.size() - d] == space_[space_.size() - d];
      };
      if (std::none_of(inputs_.begin(), inputs_.end(), covers)) {
        inputs_[0] = &keep(inputs_[0]->expand(space_));
        return;
      }
    }
  }

  void launch(at::TensorIteratorBase& iterator, const Scalars& scalars, void* stream) const {
    if (!iterator.can_use_32bit_indexing()) {
      for (auto& part : iterator.with_32bit_indexing()) launch(part, scalars, stream);
      return;
    }
    c10::SmallVector<const int64_t*, 8> strides;
    c10::SmallVector<char*, 8> data;
    for (int i = 0; i < iterator.ntensors(); ++i) {
      strides.push_back(iterator.strides(i).data());
      data.push_back(static_cast<char*>(iterator.data_ptr(i)));
    }
    const Launch launch{abi_version,      iterator.ndim(), iterator.shape().data(),
                        strides.data(),   data.data(),     iterator.ntensors(),
                        iterator.numel(), scalars.data(),  stream};
    char message[1024];
    message[0] = '\0';
    const int status = reinterpret_cast<Launcher>(address_)(&launch, message, sizeof message);
    if (C10_UNLIKELY(status != Status::ok)) refuse(signature_, sizes_.dtype, status, message);
  }

  /// Sums and permutes a result from the shape of the space to the output's.
  void finish(size_t k) {
    at::Tensor& output = outputs_[k];
    const Ints summed = summed_ >> k & 1 ? Ints() : sums(k);
    // Without dimensions at::sum would sum all of them.
    if (!summed.empty()) output = at::sum(output, summed, /*keepdim=*/false, output.scalar_type());
    if (!formula_.finishes[k].places.empty())
      output = output.permute(formula_.order(signature_, k, sizes_.batch.size()));
  }

  // Rows that are joined are shorter than this, and together no longer than that.
  static constexpr int64_t short_row = 64, joined_row = 1024;
  // Elements of a part, of which a cache nearby holds all operands.
  static constexpr int64_t in_cache = 1 << 17;
  // Elements that are summed to one at least, so that these are few.
  static constexpr int64_t fewest_summed = 64;

  const Signature& signature_;
  const Formula& formula_;
  Supply& supply_;
  const c10::DeviceType device_;
  const c10::ArrayRef<c10::IValue> arguments_;
  const Sizes sizes_;
  const Ints space_;
  const int64_t numel_;
  uint64_t wanted_ = 0;
  void* address_ = nullptr;
  bool divided_ = false;
  uint64_t summed_ = 0;
  c10::SmallVector<at::Tensor, 5> views_;
  c10::SmallVector<const at::Tensor*, 8> inputs_;
  Outputs outputs_;
};

}  // namespace

void call_formula(const Definition& definition, c10::DeviceType device, torch::jit::Stack& stack) {
  // Another thread may just have replaced the definition by one without a kernel.
  if (!definition.formula)
    fail("no-kernel [PB351]", definition.signature, "it was redefined during this call");
  const size_t arguments = definition.signature.arguments;
  FormulaCall::Outputs outputs =
      FormulaCall(definition, device, torch::jit::last(stack, arguments)).run();
  torch::jit::drop(stack, arguments);
  for (at::Tensor& output : outputs) stack.emplace_back(std::move(output));
}

}  // namespace pullback
