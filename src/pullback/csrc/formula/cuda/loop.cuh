/// The work of one thread, as a function of its number, so that a test on the host can play the
/// grid.
///
/// Numbers and offsets fit in 32 bits: PyTorch splits larger calls before it launches.
#pragma once

#include "storage.cuh"

namespace pullback::formula {

constexpr uint32_t block = 256;  // threads

template <int... Index>
struct Indices {};
template <int count, int... Index>
struct Counted : Counted<count - 1, count - 1, Index...> {};
template <int... Index>
struct Counted<0, Index...> {
  using Type = Indices<Index...>;
};
template <int count>
using UpTo = typename Counted<count>::Type;

template <class... Type>
constexpr int largest() {
  int most = 1;
  ((most = int(sizeof(Type)) > most ? int(sizeof(Type)) : most), ...);
  return most;
}

/// Operands that are each either one contiguous row, or one element for the whole row.
template <int operands>
struct Dense {
  char* data[operands];
  bool repeated[operands];
  uint32_t n;
};

/// Division by an invariant divisor as a product: a GPU has no instruction that divides integers.
///
/// Source:
///   T. Granlund, P. Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994.
struct Divisor {
  uint32_t value, factor, shift;

  /// For 1 <= value <= 2³¹.
  static Divisor of(uint32_t value) {
    uint32_t shift = 0;
    while ((uint64_t(1) << shift) < value) ++shift;
    const uint64_t missing = (uint64_t(1) << shift) - value;
    return {value, uint32_t((missing << 32) / value + 1), shift};
  }
  /// For x < 2³¹.
  PULLBACK_INLINE uint32_t quotient(uint32_t x) const {
    return (uint32_t((uint64_t(x) * factor) >> 32) + x) >> shift;
  }
};

/// Operands of any strides, the innermost dimension first.
template <int operands>
struct Strided {
  // PyTorch's own kernels take 16 after merging. A kernel's parameters have to fit into 4 KiB.
  static constexpr int most_dimensions = operands <= 32 ? 16 : 8;
  char* data[operands];
  bool repeated[operands];  // along the innermost dimension
  bool in_vectors;          // whether whole vectors lie along it, whose elements are neighbours
  uint32_t n;
  int32_t ndim;
  Divisor shape[most_dimensions];
  uint32_t strides[most_dimensions][operands];  // in bytes

  /// Finds where the operands' element number `at` is.
  PULLBACK_INLINE void offsets(uint32_t at, uint32_t (&found)[operands]) const {
    PULLBACK_UNROLL
    for (int k = 0; k < operands; ++k) found[k] = 0;
    for (int d = 0; d < ndim; ++d) {
      const uint32_t outer = shape[d].quotient(at), here = at - outer * shape[d].value;
      PULLBACK_UNROLL
      for (int k = 0; k < operands; ++k) found[k] += here * strides[d][k];
      at = outer;
    }
  }
};

template <class... Type>
struct Outputs {};
template <class... Type>
struct Inputs {};
template <class Outputs, class Inputs>
struct Stored;

/// The dtypes in memory, the outputs' first.
template <class... O, class... I>
struct Stored<Outputs<O...>, Inputs<I...>> {
  static constexpr int outputs = sizeof...(O), operands = outputs + sizeof...(I);
  static constexpr int vector = 16 / largest<O..., I...>();  // elements that a thread reads at once
  static constexpr uint32_t sizes[] = {sizeof(O)..., sizeof(I)...};

  /// The work of thread `thread` of `threads`, where the operands are dense and aligned.
  template <class Body>
  PULLBACK_INLINE static void dense(const Body& body, const Dense<operands>& given, uint32_t thread,
                                    uint32_t threads) {
    const uint32_t whole = given.n - given.n % vector;
    for (uint32_t at = thread * vector; at < whole; at += threads * vector) {
      neighbours<vector>(body, given, at, UpTo<outputs>{}, UpTo<sizeof...(I)>{});
    }
    // The few elements that fill no vector.
    for (uint32_t at = whole + thread; at < given.n; at += threads) {
      neighbours<1>(body, given, at, UpTo<outputs>{}, UpTo<sizeof...(I)>{});
    }
  }

  /// The work of thread `thread` of `threads`, whatever the strides.
  template <class Body>
  PULLBACK_INLINE static void strided(const Body& body, const Strided<operands>& given,
                                      uint32_t thread, uint32_t threads) {
    if (given.in_vectors) {
      places<vector>(body, given, thread, threads);
    } else {
      places<1>(body, given, thread, threads);
    }
  }

 private:
  template <int count, class Body>
  PULLBACK_INLINE static void places(const Body& body, const Strided<operands>& given,
                                     uint32_t thread, uint32_t threads) {
    for (uint32_t at = thread * count; at < given.n; at += threads * count) {
      uint32_t offset[operands];
      given.offsets(at, offset);
      there<count>(body, given, offset, UpTo<outputs>{}, UpTo<sizeof...(I)>{});
    }
  }

  template <int count, class Body, int... o, int... i>
  PULLBACK_INLINE static void neighbours(const Body& body, const Dense<operands>& given,
                                         uint32_t at, Indices<o...>, Indices<i...>) {
    compute<count>(body, Sink<O, count>(given.data[o] + at * sizeof(O))...,
                   read<I, count>(given.data[outputs + i], at, given.repeated[outputs + i])...);
  }

  template <int count, class Body, int... o, int... i>
  PULLBACK_INLINE static void there(const Body& body, const Strided<operands>& given,
                                    const uint32_t (&offset)[operands], Indices<o...>,
                                    Indices<i...>) {
    compute<count>(body, Sink<O, count>(given.data[o] + offset[o])...,
                   read<I, count>(given.data[outputs + i] + offset[outputs + i], 0,
                                  given.repeated[outputs + i])...);
  }

  /// All operands are parameters, since there is no <tuple> here.
  template <int count, class Body>
  PULLBACK_INLINE static void compute(const Body& body, Sink<O, count>... output,
                                      Pack<I, count>... input) {
    PULLBACK_UNROLL
    for (int k = 0; k < count; ++k) body(input[k]..., output[k]...);
    (output.write(), ...);
  }
};

}  // namespace pullback::formula
