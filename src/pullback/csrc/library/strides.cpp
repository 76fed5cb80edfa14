#include "strides.h"

#include "../runtime/solver.h"

#include <algorithm>
#include <numeric>

namespace pullback {

namespace {

bool holds(const c10::SymBool& condition) { return TORCH_GUARD_OR_FALSE(condition); }

bool equal(const c10::SymInt& a, const c10::SymInt& b) { return holds(a.sym_eq(b)); }

bool at_least(const c10::SymInt& a, const c10::SymInt& b) {
  if (equal(b, 0)) return true;
  if (equal(a, 0)) return false;
  return holds(a.sym_ge(b)) || equal(a % b, 0);
}

/// The strides of one input in the space: 0 where it is repeated.
Symbols strides_in_space(const at::Tensor& tensor, const TensorSpec& spec, const Formula& formula,
                         size_t input, size_t batch, c10::SymIntArrayRef space) {
  const auto sizes = tensor.sym_sizes(), own = tensor.sym_strides();
  Symbols strides(space.size(), c10::SymInt(0));
  const auto set = [&](size_t to, size_t from) {
    if (!equal(sizes[from], 1) || equal(space[to], 1)) strides[to] = own[from];
  };
  if (const auto& alignment = formula.alignments[input]) {
    each_aligned(spec, formula.space, *alignment, sizes.size(), batch, set);
  } else {
    for (size_t d = 0; d < sizes.size(); ++d) set(space.size() - sizes.size() + d, d);
  }
  return strides;
}

/// Whether a walk over the dimensions in `order` covers memory without gaps.
bool dense(c10::SymIntArrayRef shape, c10::SymIntArrayRef strides,
           const std::vector<size_t>& order) {
  c10::SymInt expected = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    if (equal(shape[*d], 1)) continue;
    if (!equal(strides[*d], expected)) return false;
    expected = expected * shape[*d];
  }
  return true;
}

/// Sorts the dimensions from the outermost to the innermost, as TensorIterator does.
class Order {
 public:
  Order(c10::SymIntArrayRef shape, const std::vector<Symbols>& inputs)
      : shape_(shape), inputs_(inputs) {}

  std::vector<size_t> run() const {
    std::vector<size_t> in_order(shape_.size());
    std::iota(in_order.begin(), in_order.end(), 0);
    std::vector<size_t> channels_last = in_order;
    if (shape_.size() == 4 || shape_.size() == 5)
      std::rotate(channels_last.begin() + 1, channels_last.begin() + 2, channels_last.end());
    const bool contiguous = all_dense(in_order);
    const bool last = channels_last != in_order && all_dense(channels_last);
    if (contiguous != last) return contiguous ? in_order : channels_last;
    return sorted();
  }

 private:
  bool all_dense(const std::vector<size_t>& order) const {
    return std::all_of(inputs_.begin(), inputs_.end(),
                       [&](const Symbols& strides) { return dense(shape_, strides, order); });
  }

  /// Above 0 if dimension `a`, which is inside `b`, belongs outside; below 0 if it does not.
  int compare(size_t a, size_t b) const {
    for (const Symbols& strides : inputs_) {
      const c10::SymInt &stride_a = strides[a], &stride_b = strides[b];
      if (equal(stride_a, 0) || equal(stride_b, 0)) continue;
      if (equal(stride_a, stride_b)) {
        if (at_least(shape_[b], shape_[a])) continue;
        return 1;
      }
      if (at_least(stride_b, stride_a)) return -1;
      if (at_least(stride_a, stride_b)) return 1;
    }
    return 0;
  }

  /// An insertion sort, since some pairs cannot be compared.
  std::vector<size_t> sorted() const {
    std::vector<size_t> order(shape_.size());
    std::iota(order.rbegin(), order.rend(), 0);
    for (size_t i = 1; i < order.size(); ++i) {
      size_t moving = i;
      for (size_t d = i; d-- > 0;) {
        const int comparison = compare(order[d], order[moving]);
        if (comparison < 0) break;
        if (comparison == 0) continue;
        std::swap(order[d], order[moving]);
        moving = d;
      }
    }
    std::reverse(order.begin(), order.end());
    return order;
  }

  const c10::SymIntArrayRef shape_;
  const std::vector<Symbols>& inputs_;
};

Symbols strides_in(const std::vector<size_t>& order, c10::SymIntArrayRef shape) {
  Symbols strides(shape.size(), c10::SymInt(1));
  c10::SymInt step = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    strides[*d] = step;
    step = step * shape[*d].max(1);
  }
  return strides;
}

}  // namespace

Symbols contiguous_strides(c10::SymIntArrayRef shape) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  return strides_in(order, shape);
}

Layouts::Layouts(const Definition& definition, const SizesOf<c10::SymInt>& sizes,
                 c10::ArrayRef<c10::IValue> arguments)
    : definition_(definition), batch_(sizes.batch.size()) {
  if (!definition.formula) return;
  const Formula& formula = *definition.formula;
  const Signature& signature = definition.signature;
  space_ = evaluated_shape(formula.space, signature, sizes, arguments);
  Loops::Key key{0, 0, sizes.dtype, formula.cpu ? c10::DeviceType::CPU : c10::DeviceType::CUDA};
  for (size_t k = 0; k < signature.outputs.size(); ++k)
    key.wanted |= uint64_t{wanted(signature, arguments, k)} << k;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    key.present |= uint64_t{tensor_of(arguments[signature.inputs[i].argument]).defined()} << i;
  }
  const CompiledLoop* loop = key.wanted ? formula.loops->find(key) : nullptr;
  if (key.wanted && !loop) loop = &definition.supply->loop(signature, formula, key);
  std::vector<Symbols> inputs;
  for (size_t i = 0; loop && i < signature.inputs.size(); ++i) {
    if (!(loop->used >> i & 1)) continue;
    const TensorSpec& spec = signature.inputs[i];
    if (!(key.present >> i & 1)) continue;  // a zero, which is repeated
    inputs.push_back(
        strides_in_space(tensor_of(arguments[spec.argument]), spec, formula, i, batch_, space_));
  }
  strides_ =
      inputs.empty() ? contiguous_strides(space_) : strides_in(Order(space_, inputs).run(), space_);
}

Symbols Layouts::strides(size_t k, c10::SymIntArrayRef shape) const {
  if (!definition_.formula) return contiguous_strides(shape);
  const Formula& formula = *definition_.formula;
  const Ints summed = formula.summed(k, batch_);
  Symbols left, strides = strides_;
  if (!summed.empty()) {
    for (size_t d = 0; d < space_.size(); ++d) {
      if (std::find(summed.begin(), summed.end(), static_cast<int64_t>(d)) == summed.end())
        left.push_back(space_[d]);
    }
    strides = contiguous_strides(left);
  }
  if (formula.finishes[k].places.empty()) return strides;
  Symbols permuted;
  for (const int64_t d : formula.order(definition_.signature, k, batch_))
    permuted.push_back(strides[d]);
  return permuted;
}

}  // namespace pullback
