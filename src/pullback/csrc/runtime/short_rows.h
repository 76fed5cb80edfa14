/// Rows of a space: short ones are computed several at a time.
#pragma once

#include "../kernel_abi.h"

#include <ATen/TensorIterator.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace pullback {

/// A loop over rows, as an iterator calls it.
///
/// A call of the loop has a price, and so have the elements that fill no vector: of `x + b`, with a
/// bias of 10 channels, most of the time. So where rows lie one after the other in the outputs,
/// several are one row for the loop. Inputs that lie otherwise are laid out as these are: a bias,
/// which is the same for all rows, once.
class ShortRows {
 public:
  ShortRows(Loop loop, const Scalar* scalars, const at::TensorIteratorBase& iterator)
      : loop_(loop), scalars_(scalars), outputs_(static_cast<size_t>(iterator.noutputs())) {
    for (int k = 0; k < iterator.ntensors(); ++k)
      sizes_.push_back(static_cast<int64_t>(iterator.element_size(k)));
  }

  void operator()(char** data, const int64_t* strides, int64_t n, int64_t rows) const {
    if (rows < fewest || n > longest(strides, n)) {
      run_each(data, strides, n, rows);
    } else {
      run_joined(data, strides, n, rows);
    }
  }

 private:
  using Strides = c10::SmallVector<int64_t, 8>;
  using Addresses = c10::SmallVector<char*, 8>;

  // Elements of rows together about, and rows at least.
  static constexpr int64_t together = 1024, fewest = 8;
  // Bytes of a buffer that are written beyond its end.
  static constexpr int64_t spare = 16;

  size_t operands() const { return sizes_.size(); }

  bool is_dense(const int64_t* strides, int64_t n, size_t k) const {
    return strides[k] == sizes_[k] && strides[operands() + k] == n * sizes_[k];
  }

  bool is_one(const int64_t* strides, size_t k) const {
    return strides[k] == 0 && strides[operands() + k] == 0;
  }

  bool is_in_place(const int64_t* strides, int64_t n, size_t k) const {
    return is_one(strides, k) || is_dense(strides, n, k);
  }

  /// The longest rows that are worth it: none where those of an output do not lie one after the
  /// other, and few where an input that differs from row to row is laid out.
  int64_t longest(const int64_t* strides, int64_t n) const {
    int64_t found = 511;
    for (size_t k = 0; k < operands(); ++k) {
      if (k < outputs_ && !is_dense(strides, n, k)) return 0;
      if (strides[operands() + k] != 0 && !is_dense(strides, n, k)) found = 255;
    }
    return found;
  }

  void run_each(char** data, const int64_t* strides, int64_t n, int64_t rows) const {
    Addresses at(data, data + operands());
    for (int64_t row = 0; row < rows; ++row) {
      loop_(at.data(), strides, n, scalars_);
      for (size_t k = 0; k < operands(); ++k) at[k] += strides[operands() + k];
    }
  }

  void run_joined(char** data, const int64_t* strides, int64_t n, int64_t rows) const {
    const int64_t most = std::min(rows, std::max(together / n, fewest));
    Addresses at(data, data + operands());
    Strides steps;
    c10::SmallVector<std::vector<char>, 4> laid_out(operands());
    for (size_t k = 0; k < operands(); ++k) {
      steps.push_back(is_one(strides, k) ? 0 : sizes_[k]);
      if (is_in_place(strides, n, k)) continue;
      laid_out[k].resize(static_cast<size_t>(most * n * sizes_[k] + spare));
      if (strides[operands() + k] == 0) lay_out(k, laid_out[k].data(), at[k], strides, n, most);
    }
    for (int64_t row = 0; row < rows; row += most) {
      const int64_t many = std::min(most, rows - row);
      Addresses given = at;
      for (size_t k = 0; k < operands(); ++k) {
        const int64_t step = strides[operands() + k];
        if (!laid_out[k].empty()) {
          given[k] = laid_out[k].data();
          if (step != 0) lay_out(k, given[k], at[k], strides, n, many);
        }
        at[k] += many * step;
      }
      loop_(given.data(), steps.data(), many * n, scalars_);
    }
  }

  void lay_out(size_t k, char* to, const char* from, const int64_t* strides, int64_t n,
               int64_t rows) const {
    const int64_t step = strides[k], row = strides[operands() + k];
    switch (sizes_[k]) {
      case 1: return copy<1>(to, from, step, row, n, rows);
      case 2: return copy<2>(to, from, step, row, n, rows);
      case 4: return copy<4>(to, from, step, row, n, rows);
      default: return copy<8>(to, from, step, row, n, rows);
    }
  }

  template <int size>
  static void copy(char* to, const char* from, int64_t step, int64_t row, int64_t n, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r, from += row) {
      if (step == 0) {
        fill<size>(to, from, n);
      } else {
        for (int64_t k = 0; k < n; ++k) std::memcpy(to + k * size, from + k * step, size);
      }
      to += n * size;
    }
  }

  /// Writes an element n times, and into the spare bytes: 16 bytes at a time.
  template <int size>
  static void fill(char* to, const char* from, int64_t n) {
    char pattern[spare];
    for (int64_t k = 0; k < spare; k += size) std::memcpy(pattern + k, from, size);
    for (int64_t k = 0; k < n * size; k += spare) std::memcpy(to + k, pattern, spare);
  }

  const Loop loop_;
  const Scalar* const scalars_;
  const size_t outputs_;
  Strides sizes_;
};

}  // namespace pullback
