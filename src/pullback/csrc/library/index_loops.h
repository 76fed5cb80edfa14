/// Runs the loops over indices of one call.
#pragma once

#include "entry_order.h"
#include "index_sizes.h"

#include "../runtime/kernel.h"

namespace pullback {

using LoopTensors = std::vector<at::Tensor>;

/// What loops of one call share.
struct LoopCall {
  const Signature& signature;
  const LoopLimits& limits;
  LoopTensors inputs;  // of the line, the dimensions of `...` taken together
  CallSizes sizes;
  Scalars scalars;

  /// Returns what a group of loops computes. Throws PB149.
  LoopTensors run(const LoopGroup& group);

 private:
  /// Runs kernels; returns what they write, except what is only for later ones. Sets `outside` if
  /// one has met a place outside of its tensor.
  LoopTensors run(const LoopChain& chain, const std::vector<EntryOrder>& orders, bool& outside);
  int run(const LoopKernel& kernel, const LoopTensors& tensors, int64_t count, double work);
  at::Tensor lay_out(const LoopInput& input, const std::vector<EntryOrder>& orders) const;
  EntryOrder sort(const LoopSegments& segments, bool& outside);
  void require_inside(const LoopPlaces& checked);
  double count_operations(const LoopKernel& kernel) const;
  int64_t count_parts(const LoopKernel& kernel) const;
};

}  // namespace pullback
