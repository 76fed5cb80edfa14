/// Reductions across the lanes of an accumulator, and sums that outlive one row.
///
/// Long sums are added up in blocks and in several lanes, then pairwise: their error grows with the
/// logarithm of their length and not with the length. N. Higham, "The accuracy of floating point
/// summation", SIAM J. Sci. Comput. 14 (1993).
#pragma once

#include "lanes.h"

namespace pullback::index {

/// How many vectors are added up before their total is added to that of the earlier blocks.
constexpr int64_t block_of_sum = 128;

/// Moves each lane so many lanes down; what was moved out comes in again.
template <int by, class Vector, int... lane>
PULLBACK_INLINE Vector moved_down(Vector x, std::integer_sequence<int, lane...>) {
  if constexpr (sizeof x > register_bytes) {
    int64_t twice[2 * lanes];
    for (int k = 0; k < 2; ++k) store<int64_t>(reinterpret_cast<char*>(twice + k * lanes), x);
    return load<int64_t>(reinterpret_cast<const char*>(twice + by));
  } else {
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(x, x, ((lane + by) % lanes)...);
#else
    return Vector{x[(lane + by) % lanes]...};
#endif
  }
}

template <int count, class Vector, class Join>
PULLBACK_INLINE auto halved(Vector x, Join join) {
  if constexpr (count == 1) {
    return x[0];
  } else {
    const auto every = std::make_integer_sequence<int, lanes>{};
    return halved<count / 2>(join(x, moved_down<count / 2>(x, every)), join);
  }
}

PULLBACK_INLINE Real sum_of_lanes(Real x) {
  return halved<lanes>(x, [](Real a, Real b) { return a + b; }) - Real{};
}
PULLBACK_INLINE Whole sum_of_lanes(Whole x) {
  return splat(int64_t(halved<lanes>(x, [](Whole a, Whole b) { return a + b; })));
}
PULLBACK_INLINE Real most_of_lanes(Real x) {
  return halved<lanes>(x, [](Real a, Real b) { return maximum(a, b); }) - Real{};
}
PULLBACK_INLINE Whole most_of_lanes(Whole x) {
  return splat(int64_t(halved<lanes>(x, [](Whole a, Whole b) { return maximum(a, b); })));
}

constexpr int64_t least_whole = INT64_MIN;

/// Where the greatest value is so far: the first of equal ones, or of the NaNs. A place is below 2^31
/// in a loop of floats: there it has a lane of 32 bits, since g++ compares wider ones one by one.
template <class Vector>
struct Greatest {
  Vector value;
  Truth place;
  using Lane = TruthOf<Compute>::Lane;

  PULLBACK_INLINE static Truth is_nan(Real x) { return ne(x, x); }
  PULLBACK_INLINE static Truth is_nan(Whole) { return Truth{}; }

  PULLBACK_INLINE explicit Greatest(Vector least) : value(least), place(Truth{} - 1) {}
  /// Places arrive in order within a lane; this one is the same in all lanes.
  PULLBACK_INLINE void see(Vector other, int64_t at, Truth counts) {
    take(other, Lane(at) - Truth{}, counts, Truth(place < 0));
  }
  /// Each lane has the next place.
  PULLBACK_INLINE void see_from(Vector other, int64_t first, Truth counts) {
    take(other, Lane(first) + numbers<Truth>(), counts, Truth(place < 0));
  }
  PULLBACK_INLINE void take(Vector other, Truth at, Truth counts, Truth first) {
    const Truth greater = logical_or(gt(other, value), is_nan(other) & ~is_nan(value));
    const Truth better = counts & (greater | first);
    value = where(better, other, value);
    place = where(better, at, place);
  }
  /// Merges what another accumulator has seen.
  PULLBACK_INLINE void join(const Greatest& other) {
    const Truth equal = logical_or(eq(other.value, value), is_nan(other.value) & is_nan(value));
    const Truth first = Truth(place < 0) | (equal & Truth(other.place < place));
    take(other.value, other.place, Truth(other.place >= 0), first);
  }
  /// The place of each lane.
  PULLBACK_INLINE Whole each() const { return widened<Lane>(place); }
  /// The place in every lane; -1 if nothing was seen.
  PULLBACK_INLINE Whole all() const {
    Greatest best = *this;
    best.template join_lanes<lanes>();
    return splat(int64_t(best.place[0]));
  }
  /// Lets the first lane have seen what the first `count` have.
  template <int count>
  PULLBACK_INLINE void join_lanes() {
    if constexpr (count > 1) {
      const auto every = std::make_integer_sequence<int, lanes>{};
      Greatest other = *this;
      other.value = moved_down<count / 2>(value, every);
      other.place = moved_down<count / 2>(place, every);
      join(other);
      join_lanes<count / 2>();
    }
  }
};

/// Adds a number that is in every lane to a total that is kept in double.
PULLBACK_INLINE void add_one(double& total, Real value) { total += double(value[0]); }

/// Sets a total to a number that is in every lane.
PULLBACK_INLINE void set_one(double& total, Real value) { total = double(value[0]); }
/// Sets totals to the first `count` lanes of a vector.
PULLBACK_INLINE void set_to(double* total, Real value, int64_t count) {
  store_edge<double>(reinterpret_cast<char*>(total), value, count);
}

/// Adds the first `count` lanes of a vector to totals that are kept in double.
PULLBACK_INLINE void add_to(double* total, Real value, int64_t count) {
#if !defined(__clang__) && defined(__AVX512VL__) && !PULLBACK_DOUBLE && PULLBACK_LANES == 16 && \
    __has_builtin(__builtin_shufflevector)
  // Half by half: GCC takes a wide vector apart through memory, and what is left of a row one by one.
  const auto add = [total, count](int64_t first, auto half) {
    using Register [[gnu::vector_size(64)]] = double;
    const int64_t left = count - first;
    const uint8_t mask = left >= 8 ? 0xff : uint8_t((1u << (left > 0 ? left : 0)) - 1);
    double* const own = total + first;
    const Register wide = __builtin_ia32_cvtps2pd512_mask(half, Register{}, 0xff, 4);
    const Register sum = __builtin_ia32_loadupd512_mask(own, Register{}, mask) + wide;
    __builtin_ia32_storeupd512_mask(own, sum, mask);
  };
  add(0, __builtin_shufflevector(value, value, 0, 1, 2, 3, 4, 5, 6, 7));
  add(8, __builtin_shufflevector(value, value, 8, 9, 10, 11, 12, 13, 14, 15));
  return;
#endif
  if (count >= lanes) {
    // Register by register: GCC takes a vector of two of them through memory.
    constexpr int parts = sizeof(Lanes<double>) / sizeof(Real), few = lanes / parts;
    using Part [[gnu::vector_size(sizeof(Real) / parts)]] = Compute;
    using Sum [[gnu::vector_size(sizeof(Lanes<double>) / parts)]] = double;
    for (int k = 0; k < parts; ++k) {
      Part part;
      Sum sum;
      __builtin_memcpy(&part, reinterpret_cast<const char*>(&value) + k * sizeof part, sizeof part);
      __builtin_memcpy(&sum, total + k * few, sizeof sum);
      sum += __builtin_convertvector(part, Sum);
      __builtin_memcpy(total + k * few, &sum, sizeof sum);
    }
    return;
  }
  for (int64_t k = 0; k < count; ++k) total[k] += double(value[k]);
}

}  // namespace pullback::index
