/// One call of an operator in index notation: loops are chosen for it, and run.
#include "index_loops.h"
#include "library.h"

#include "../runtime/solver.h"

#include <ATen/ops/zeros.h>

#include <bit>
#include <numeric>
#include <optional>

namespace pullback {

namespace {

class IndexedCall {
 public:
  IndexedCall(const Signature& signature, const IndexTable& table,
              c10::ArrayRef<c10::IValue> arguments)
      : signature_(signature),
        table_(table),
        arguments_(arguments),
        sizes_(solve(signature, arguments)),
        shapes_(signature.outputs.size()) {
    require_counts(signature, table, arguments);
    for (size_t k = 0; k < shapes_.size(); ++k) {
      if (!wanted(signature, arguments, k)) continue;
      wanted_ |= uint64_t{1} << k;
      shapes_[k] = shape_of(signature.outputs[k], signature, sizes_, arguments);
    }
    for (size_t i = 0; i < signature.inputs.size(); ++i)
      present_ |= uint64_t{input(i).defined()} << i;
  }

  LoopTensors run() const {
    LoopTensors outputs(shapes_.size());
    if (!wanted_) return outputs;
    // The states of a recurrence stand behind the outputs, and all are needed.
    const uint64_t states = shapes_.size() < 64 ? ~uint64_t{0} << shapes_.size() : 0;
    const CallSizes sizes = find_sizes(signature_, table_, sizes_, arguments_, wanted_ | states);
    const at::Device device = sizes_.device;
    std::optional<OnDevice> on;
    if (!device.is_cpu()) on.emplace(device);
    void* const stream = on ? on->stream : nullptr;
    LoopCall call{signature_, table_, sizes_.dtype, device, stream, {}, sizes, {}};
    const LoopChoice& choice = choose(call);
    call.inputs = inputs(choice.present);
    const Scalars scalars = scalars_of(signature_, arguments_);
    for (const LoopGroup* group : choice.groups) {
      const auto needed = [&](size_t k) { return wanted_ >> k & 1; };
      if (group->results.empty() &&
          std::none_of(group->outputs.begin(), group->outputs.end(), needed))
        continue;
      call.scalars.clear();
      for (const size_t place : group->scalars) call.scalars.push_back(scalars[place]);
      const LoopTensors results = call.run(*group);
      for (size_t j = 0; j < results.size(); ++j) {
        if (!group->results.empty()) {
          keep(group->results.items[j], results[j], sizes, call.inputs, outputs);
          continue;
        }
        const size_t k = group->outputs.items[j];
        if (needed(k)) outputs[k] = finished(results[j], k);
      }
    }
    return outputs;
  }

 private:
  /// Gives a result of a recurrence to the outputs that it is, and to later loops.
  void keep(const LoopResult& result, const at::Tensor& value, const CallSizes& sizes,
            LoopTensors& inputs, LoopTensors& outputs) const {
    if (result.outputs.empty() && result.state < 0) return;
    at::Tensor turned =
        value.permute(at::IntArrayRef(result.order.items, result.order.count)).contiguous();
    if (result.is_ring) turned = (result.state < 0 ? total : end)(result, turned, sizes);
    bool first = true;
    for (const size_t k : result.outputs) {
      if (!(wanted_ >> k & 1)) continue;
      outputs[k] = finished(first ? turned : turned.clone(), k);
      first = false;
    }
    if (result.state < 0) return;
    const auto place = static_cast<size_t>(result.state);
    inputs.resize(std::max(inputs.size(), place + 1));
    inputs[place] = turned;
  }

  /// Returns what was added up at last over the steps, of which a ring is kept.
  static at::Tensor total(const LoopResult& result, const at::Tensor& ring,
                          const CallSizes& sizes) {
    const int64_t place = evaluate(result.last, sizes) % ring.size(result.summed);
    const at::Tensor last = ring.select(result.summed, place);
    if (result.summed == 0) return last.contiguous();
    Ints summed(static_cast<size_t>(result.summed));
    std::iota(summed.begin(), summed.end(), 0);
    return last.sum(summed);
  }

  /// Returns a state whose every step is the last one, of which a ring is kept.
  static at::Tensor end(const LoopResult& result, const at::Tensor& ring, const CallSizes& sizes) {
    const int64_t last = evaluate(result.last, sizes);
    std::vector<int64_t> shape = ring.sizes().vec();
    shape[result.summed] = last + 1;
    return ring.narrow(result.summed, last % ring.size(result.summed), 1).expand(shape);
  }

  /// Returns what loops computed as an output; the states of halves are wider.
  at::Tensor finished(const at::Tensor& value, size_t k) const {
    return value.view(shapes_[k]).to(signature_.outputs[k].dtype.value_or(sizes_.dtype));
  }

  const at::Tensor& input(size_t i) const {
    return tensor_of(arguments_[signature_.inputs[i].argument]);
  }

  /// The loops that compute no more than is necessary, made for as many of the call's sizes as
  /// possible. Those that were not compiled compute more outputs, and read zeros for what is None.
  const LoopChoice& choose(const LoopCall& call) const {
    const LoopChoice* best = nullptr;
    const auto more = [](const LoopChoice& choice) {
      return std::popcount(choice.wanted) + std::popcount(choice.present);
    };
    for (const LoopChoice& choice : table_.choices) {
      if (choice.dtype != static_cast<int>(sizes_.dtype)) continue;
      if (wanted_ & ~choice.wanted || present_ & ~choice.present) continue;
      const auto has = [&](const LoopChoice::Known& known) {
        return call.sizes[known.slot] == known.size;
      };
      if (!std::all_of(choice.made_for.begin(), choice.made_for.end(), has)) continue;
      const auto has_room = [&](const LoopGroup* group) { return call.has_room(*group); };
      if (!std::all_of(choice.groups.begin(), choice.groups.end(), has_room)) continue;
      if (!best || more(choice) < more(*best) ||
          (more(choice) == more(*best) && choice.made_for.count > best->made_for.count))
        best = &choice;
    }
    if (!best) refuse();
    return *best;
  }

  [[noreturn]] void refuse() const {
    std::vector<at::ScalarType> have;
    for (const LoopChoice& choice : table_.choices)
      have.push_back(static_cast<at::ScalarType>(choice.dtype));
    refuse_loop(signature_, sizes_.dtype, have);
  }

  LoopTensors inputs(uint64_t present) const {
    LoopTensors found(signature_.inputs.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (present >> i & 1) found[i] = flatten(signature_.inputs[i], input(i));
    }
    return found;
  }

  /// An input with all dimensions of `...` in one; zeros for one that is None.
  at::Tensor flatten(const TensorSpec& spec, const at::Tensor& given) const {
    at::Tensor whole = given;
    if (!whole.defined()) {
      const auto options =
          at::TensorOptions().dtype(spec.dtype.value_or(sizes_.dtype)).device(sizes_.device);
      whole = at::zeros({}, options).expand(shape_of(spec, signature_, sizes_, arguments_));
    }
    if (!spec.batched) return whole;
    const auto before = static_cast<int64_t>(spec.before.size());
    const auto rank = static_cast<int64_t>(spec.core() + sizes_.batch.size());
    // Dimensions of `...` line up from the right.
    while (whole.dim() < rank) whole = whole.unsqueeze(before);
    Ints shape(whole.sizes().begin(), whole.sizes().begin() + before), flat(shape);
    int64_t together = 1;
    for (const int64_t size : sizes_.batch) together *= size;
    shape.append(sizes_.batch.begin(), sizes_.batch.end());
    flat.push_back(together);
    for (int64_t d = rank - static_cast<int64_t>(spec.after.size()); d < rank; ++d) {
      shape.push_back(whole.size(d));
      flat.push_back(whole.size(d));
    }
    return whole.expand(shape).reshape(flat);
  }

  const Signature& signature_;
  const IndexTable& table_;
  const c10::ArrayRef<c10::IValue> arguments_;
  const Sizes sizes_;
  std::vector<Ints> shapes_;
  uint64_t wanted_ = 0, present_ = 0;
};

class IndexedComputation final : public Computation {
 public:
  explicit IndexedComputation(const IndexTables& tables) : tables_(tables) {}

  bool runs_on(c10::DeviceType device) const override { return table(device) != nullptr; }

  bool call(const Signature& signature, c10::DeviceType device,
            torch::jit::Stack& stack) const override {
    const auto arguments = torch::jit::last(stack, signature.arguments);
    LoopTensors outputs = IndexedCall(signature, *table(device), arguments).run();
    torch::jit::drop(stack, signature.arguments);
    for (at::Tensor& output : outputs) stack.emplace_back(std::move(output));
    return true;
  }

 private:
  const IndexTable* table(c10::DeviceType device) const {
    return device == c10::DeviceType::CUDA ? tables_.cuda : tables_.cpu;
  }

  const IndexTables tables_;
};

}  // namespace

void finish_indexed(Definition& definition, const IndexTables& tables, bool derived) {
  definition.computation = std::make_shared<IndexedComputation>(tables);
  definition.supply = make_supply({}, derived);
}

}  // namespace pullback
