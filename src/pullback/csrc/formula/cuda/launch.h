/// Launches a formula's kernels, whichever compiler made them: which of the two, with which grid.
#pragma once

#include <stdio.h>

#include "loop.cuh"

namespace pullback::formula {

/// Whether an operand has one element for all of the space.
inline bool repeats(const Launch& launch, int operand) {
  for (int d = 0; d < launch.ndim; ++d) {
    if (launch.shape[d] != 1 && launch.strides[operand][d] != 0) return false;
  }
  return true;
}

/// Whether an operand's elements follow one another in the order of the space.
inline bool contiguous(const Launch& launch, int operand, int64_t size) {
  for (int d = 0; d < launch.ndim; ++d) {
    if (launch.shape[d] != 1 && launch.strides[operand][d] != size) return false;
    size *= launch.shape[d];
  }
  return true;
}

/// Fills `dense` and returns true if whole vectors of every operand can be read and written.
template <class Operands>
bool arrange(const Launch& launch, Dense<Operands::operands>& dense) {
  dense.n = uint32_t(launch.n);
  for (int k = 0; k < Operands::operands; ++k) {
    const uint32_t size = Operands::sizes[k];
    dense.data[k] = launch.data[k];
    dense.repeated[k] = k >= Operands::outputs && repeats(launch, k);
    if (dense.repeated[k]) continue;
    if (!contiguous(launch, k, size)) return false;
    if (reinterpret_cast<uintptr_t>(launch.data[k]) % (size * Operands::vector)) return false;
  }
  return true;
}

/// Whether whole vectors of every operand lie along the innermost dimension, as a bias has them.
template <class Operands>
bool lies_in_vectors(const Strided<Operands::operands>& strided) {
  if (!strided.ndim || strided.shape[0].value % Operands::vector) return false;
  for (int k = 0; k < Operands::operands; ++k) {
    const uint32_t size = Operands::sizes[k];
    if (strided.repeated[k] && k >= Operands::outputs) continue;
    if (strided.strides[0][k] != size) return false;
    const uint32_t whole = size * Operands::vector;
    if (reinterpret_cast<uintptr_t>(strided.data[k]) % whole) return false;
    for (int d = 1; d < strided.ndim; ++d) {
      if (strided.strides[d][k] % whole) return false;
    }
  }
  return true;
}

/// Fills `strided`; returns false if there are more dimensions than it has room for.
template <class Operands>
bool arrange(const Launch& launch, Strided<Operands::operands>& strided) {
  strided.n = uint32_t(launch.n);
  strided.ndim = 0;
  for (int k = 0; k < Operands::operands; ++k) strided.data[k] = launch.data[k];
  for (int d = 0; d < launch.ndim; ++d) {
    if (launch.shape[d] == 1) continue;
    if (strided.ndim == strided.most_dimensions) return false;
    strided.shape[strided.ndim] = Divisor::of(uint32_t(launch.shape[d]));
    for (int k = 0; k < Operands::operands; ++k) {
      strided.strides[strided.ndim][k] = uint32_t(launch.strides[k][d]);
    }
    ++strided.ndim;
  }
  for (int k = 0; k < Operands::operands; ++k) {
    strided.repeated[k] = strided.ndim && strided.strides[0][k] == 0;
  }
  strided.in_vectors = lies_in_vectors<Operands>(strided);
  return true;
}

/// As many blocks as there is work for: the GPU schedules them.
inline uint32_t blocks_for(int64_t n, int64_t elements) {
  return uint32_t((n + block * elements - 1) / (block * elements));
}

/// Launches one of the two kernels.
///
/// `start(dense, blocks, operands)` starts it with `block` threads in each block and returns null,
/// or what went wrong.
template <class Operands, class Start>
int run(const Launch& launch, char* message, uint64_t capacity, Start start) {
  if (launch.n > INT32_MAX) {
    snprintf(message, capacity, "%lld elements do not fit 32 bits",
             static_cast<long long>(launch.n));
    return size_overflow;
  }
  const char* error;
  Dense<Operands::operands> dense;
  if (arrange<Operands>(launch, dense)) {
    error = start(true, blocks_for(launch.n, Operands::vector), &dense);
  } else {
    Strided<Operands::operands> strided;
    error = arrange<Operands>(launch, strided)
                ? start(false, blocks_for(launch.n, strided.in_vectors ? Operands::vector : 1),
                        &strided)
                : "the operands have too many dimensions that cannot be merged";
  }
  if (!error) return ok;
  snprintf(message, capacity, "CUDA: %s", error);
  return kernel_raised;
}

}  // namespace pullback::formula
