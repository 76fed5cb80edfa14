/// Runs the loops over indices of one call.
#pragma once

#include "../runtime/entry_order.h"
#include "index_sizes.h"

#include "../runtime/kernel.h"

namespace pullback {

using LoopTensors = std::vector<at::Tensor>;

/// What loops of one call share.
struct LoopCall {
  const Signature& signature;
  const IndexTable& table;
  at::ScalarType dtype;  // of tensors whose dtype the line leaves open
  at::Device device;
  void* stream;        // of a GPU
  LoopTensors inputs;  // of the line, the dimensions of `...` taken together
  CallSizes sizes;
  Scalars scalars;

  /// Returns what a group of loops computes. Throws PB149.
  LoopTensors run(const LoopGroup& group);

  /// Whether a GPU has shared memory for the rows that the kernels of a group keep.
  bool has_room(const LoopGroup& group) const;

 private:
  /// Runs kernels; returns what they write, except what is only for later ones. Sets `outside` if
  /// one has met a place outside of its tensor.
  LoopTensors run(const LoopChain& chain, const std::vector<EntryOrder>& orders, bool& outside);
  int run(const LoopKernel& kernel, const LoopTensors& tensors, int64_t count, double work);
  void launch(const LoopKernel& kernel, const IndexCall& call, int64_t count) const;
  at::Tensor lay_out(const LoopInput& input, const std::vector<EntryOrder>& orders) const;
  EntryOrder sort(const LoopSegments& segments, bool& outside);
  void require_inside(const LoopPlaces& checked);
  double count_operations(const LoopKernel& kernel) const;
  int64_t count_chunks(const LoopKernel& kernel, double work, int64_t parts) const;
  int64_t count_scratch(const LoopKernel& kernel) const;
  int64_t count_parts(const LoopKernel& kernel) const;
};

}  // namespace pullback
