#include "index_loops.h"

#include "../runtime/running.h"
#include "../runtime/threads.h"

#include <ATen/ops/max.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <new>

namespace pullback {

namespace {

// What a kernel returns, in bits: csrc/index/index.h.
constexpr int no_memory = 1, index_outside = 2;

int64_t count_elements(const Ints& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

/// A tensor in the dtype and the layout that a kernel reads: `lay_out` of bind/loops/own_call.py.
at::Tensor lay_out_tensor(at::Tensor tensor, const Layout& layout) {
  const auto dtype = static_cast<at::ScalarType>(layout.dtype);
  if (tensor.is_neg() || tensor.scalar_type() != dtype) tensor = tensor.resolve_neg().to(dtype);
  if (tensor.numel() == 0) {
    // Nothing of it is selected, but something may be read.
    Ints shape(tensor.sizes().begin(), tensor.sizes().end());
    for (int64_t& size : shape) size = std::max<int64_t>(size, 1);
    return at::zeros(shape, tensor.options());
  }
  if (reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % layout.aligned)
    tensor = tensor.clone();
  for (const auto& [dimension, stride] : layout.packed) {
    if (tensor.size(dimension) > 1 && tensor.stride(dimension) != stride)
      return tensor.contiguous();
  }
  const int64_t unit = layout.unit;
  if (unit < 0 || tensor.stride(unit) == 1 || tensor.size(unit) == 1) return tensor;
  // Only what is there once: an expanded tensor is not written out.
  at::Tensor core = tensor;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && d != unit) core = core.narrow(d, 0, 1);
  }
  return core.movedim(unit, -1).contiguous().movedim(-1, unit).expand(tensor.sizes());
}

/// What the next kernel reads of the totals of chunks.
at::Tensor finish(const at::Tensor& part, const LoopTotal& total, const Ints& shape) {
  const at::Tensor parts = part.view(shape);
  const bool alone = shape[static_cast<size_t>(total.summed)] == 1;
  return (alone ? parts.squeeze(total.summed) : parts.sum(total.summed))
      .permute(at::IntArrayRef(total.order.items, total.order.count));
}

}  // namespace

LoopTensors LoopCall::run(const LoopGroup& group) {
  bool outside = false;
  if (group.silent) {
    for (const LoopPlaces& checked : group.checked) require_inside(checked);
  }
  std::vector<EntryOrder> orders;
  for (const LoopSegments& segments : group.segments) orders.push_back(sort(segments, outside));
  LoopTensors outputs = run(group.chain, orders, outside);
  // Where a kernel has read elsewhere, the result stands unless that was selected.
  if (outside) {
    for (const LoopPlaces& checked : group.checked) require_inside(checked);
  }
  return outputs;
}

EntryOrder LoopCall::sort(const LoopSegments& segments, bool& outside) {
  const at::Tensor places = run(segments.places, {}, outside).front();
  sizes[segments.slot] = places.numel();
  const auto sort = table.limits.shared ? sort_entries_on_gpu : sort_entries;
  return sort(places, evaluate(segments.batch, sizes), evaluate(segments.shape, sizes),
              evaluate(segments.rows, sizes));
}

void LoopCall::require_inside(const LoopPlaces& checked) {
  bool elsewhere = false;  // a place within a place, which has a check of its own
  at::Tensor places = run(checked.places, {}, elsewhere).front();
  if (!device.is_cpu()) {
    // One number crosses over, as a rule.
    if (places.numel() == 0 || places.max().item().toLong() == nowhere) return;
    places = places.cpu();
  }
  const auto* const begin = static_cast<const int64_t*>(places.const_data_ptr());
  const auto* const end = begin + places.numel();
  const auto* const found =
      std::find_if(begin, end, [](int64_t place) { return place != nowhere; });
  if (found == end) return;
  const std::string index = std::to_string(*found);
  const std::string size = std::to_string(evaluate(checked.size, sizes));
  fail("index-outside [PB149]", signature,
       std::string("'") + checked.tensor + "' is read at " + index + " of its dimension '" +
           checked.dimension + "', which has size " + size + "\n    index: " + index +
           "\n    size: " + size,
       "an index runs from 0 to the size less 1; where(...) leaves others out");
}

LoopTensors LoopCall::run(const LoopChain& chain, const std::vector<EntryOrder>& orders,
                          bool& outside) {
  LoopTensors tensors, outputs;
  for (const LoopInput& input : chain.inputs) tensors.push_back(lay_out(input, orders));
  for (const LoopKernel& kernel : chain.kernels) {
    const double work = count_operations(kernel);
    int64_t count = count_parts(kernel);
    sizes.front() = kernel.over.empty() ? 1 : count_chunks(kernel, work, count);
    count *= sizes.front();
    const size_t first = tensors.size();
    const size_t returned = first + kernel.totals.count;
    for (const LoopKernel::Written& written : kernel.written) {
      Ints shape = evaluate(written.shape, sizes);
      const int64_t elements = count_elements(shape);
      if (tensors.size() < returned) shape = {elements};
      // Nothing is written where an output is empty.
      else if (elements == 0 && kernel.totals.empty()) count = 0;
      tensors.push_back(allocate(shape, static_cast<at::ScalarType>(written.dtype), device));
    }
    if (count) {
      const int status = run(kernel, tensors, count, work);
      if (status & no_memory) throw std::bad_alloc();
      outside = outside || status & index_outside;
    }
    if (!kernel.inner)
      outputs.insert(outputs.end(), tensors.begin() + static_cast<int64_t>(returned),
                     tensors.end());
    for (const LoopTotal& total : kernel.totals)
      tensors.push_back(finish(tensors[total.place], total, evaluate(total.shape, sizes)));
  }
  return outputs;
}

int LoopCall::run(const LoopKernel& kernel, const LoopTensors& tensors, int64_t count,
                  double work) {
  LoopTensors operands;
  c10::SmallVector<char*, 8> data;
  Ints strides;
  for (const LoopOperand& operand : kernel.operands) {
    const at::Tensor& tensor = tensors[operand.place];
    operands.push_back(operand.total ? lay_out_tensor(tensor, *operand.total) : tensor);
    const at::Tensor& own = operands.back();
    data.push_back(static_cast<char*>(const_cast<void*>(own.const_data_ptr())));
    for (const int64_t stride : own.strides())
      strides.push_back(stride * static_cast<int64_t>(own.element_size()));
  }
  const Ints taken = evaluate(kernel.sizes, sizes);
  const IndexCall call{data.data(), strides.data(), taken.data(), scalars.data()};
  if (kernel.launcher) {
    launch(kernel, call, count);
    return Status::ok;
  }
  const double grain = table.limits.grain * static_cast<double>(count) / std::max(work, 1.0);
  const InKernel in(signature.name.c_str());
  return run_tasks(kernel.function, call, count,
                   std::max<int64_t>(static_cast<int64_t>(std::min(grain, 1e18)), 1));
}

void LoopCall::launch(const LoopKernel& kernel, const IndexCall& call, int64_t count) const {
  const IndexLaunch launch{call, count, count_scratch(kernel), stream};
  char message[4096];
  message[0] = '\0';
  const int status = kernel.launcher(&launch, message, sizeof message);
  if (status != Status::ok) refuse(signature, dtype, status, message);
}

bool LoopCall::has_room(const LoopGroup& group) const {
  const int64_t room = table.limits.shared ? table.limits.shared() : 0;
  const auto fits = [&](const LoopChain& chain) {
    return std::all_of(chain.kernels.begin(), chain.kernels.end(), [&](const LoopKernel& kernel) {
      return kernel.rows.empty() || count_scratch(kernel) * kernel.groups <= room;
    });
  };
  const auto fit = [&](const auto& each) { return fits(each.places); };
  return fits(group.chain) && std::all_of(group.segments.begin(), group.segments.end(), fit) &&
         std::all_of(group.checked.begin(), group.checked.end(), fit);
}

at::Tensor LoopCall::lay_out(const LoopInput& input, const std::vector<EntryOrder>& orders) const {
  const auto dtype = static_cast<at::ScalarType>(input.layout.dtype);
  at::Tensor tensor;
  switch (input.kind) {
    case LoopInput::Kind::input: tensor = inputs[input.number]; break;
    case LoopInput::Kind::begin: tensor = orders[input.segments].begin; break;
    case LoopInput::Kind::end: tensor = orders[input.segments].end; break;
    default: tensor = orders[input.segments].indices[input.number].to(dtype);
  }
  return lay_out_tensor(tensor, input.layout);
}

double LoopCall::count_operations(const LoopKernel& kernel) const {
  CallSizes whole = sizes;
  whole.front() = 1;  // all chunks together
  double total = 0;
  for (const LoopKernel::Cost& cost : kernel.costs) {
    double times = cost.operations;
    for (const LoopKernel::Trip& trip : cost.trips)
      times *= static_cast<double>(evaluate(trip.size, whole)) / trip.divisor;
    total += times;
  }
  return total;
}

int64_t LoopCall::count_chunks(const LoopKernel& kernel, double work, int64_t parts) const {
  const LoopLimits& limits = table.limits;
  const double most = std::min(work / limits.chunk, static_cast<double>(limits.chunks));
  int64_t chunks = std::min(static_cast<int64_t>(most) + 1, limits.chunks);
  const int64_t length = evaluate(kernel.over, sizes);
  chunks = std::min(chunks, std::max(length / limits.rows, std::min(length, limits.few)));
  if (kernel.enough) {
    const int64_t others = std::max<int64_t>(parts, 1);
    chunks = std::min(chunks, (kernel.enough + others - 1) / others);
  }
  return std::max<int64_t>(chunks, 1);
}

/// The bytes of shared memory that a task takes.
int64_t LoopCall::count_scratch(const LoopKernel& kernel) const {
  int64_t total = 0;
  for (const LoopKernel::Row& row : kernel.rows)
    total += ((evaluate(row.length, sizes) + row.beyond) * row.bytes + 63) / 64 * 64;
  return total;
}

int64_t LoopCall::count_parts(const LoopKernel& kernel) const {
  int64_t parts = 1;
  for (const LoopKernel::Share& share : kernel.tasks) {
    const int64_t each = share.each * (kernel.lanes ? *kernel.lanes : 1);
    parts *= (evaluate(share.size, sizes) + each - 1) / each;
  }
  return parts;
}

}  // namespace pullback
