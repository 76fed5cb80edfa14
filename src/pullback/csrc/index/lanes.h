/// Loads and stores for loops over indices: whole vectors, and the lanes at an edge.
///
/// An edge is where an index leaves its tensor or its range. The lanes beyond it are not read: they
/// are 0, and values computed from them are not stored, not added and not selected.
#pragma once

#include <utility>

#include "../formula/storage.h"
#include "../formula/whole.h"
#include "places.h"

namespace pullback::index {

using namespace formula;

constexpr Real zero{};

/// x*y + z, rounded once where there is an instruction for it.
PULLBACK_INLINE Real multiply_add(Real x, Real y, Real z) {
#if defined(__clang__) || !defined(__FMA__) || PULLBACK_REGISTER_BYTES == 16
  return x * y + z;
#elif PULLBACK_REGISTER_BYTES == 64 && PULLBACK_DOUBLE
  return __builtin_ia32_vfmaddpd512_mask(x, y, z, -1, 4);
#elif PULLBACK_REGISTER_BYTES == 64
  return __builtin_ia32_vfmaddps512_mask(x, y, z, -1, 4);
#elif PULLBACK_DOUBLE
  return __builtin_ia32_vfmaddpd256(x, y, z);
#else
  return __builtin_ia32_vfmaddps256(x, y, z);
#endif
}
PULLBACK_INLINE Whole multiply_add(Whole x, Whole y, Whole z) { return x * y + z; }

/// Quotients and roots of numbers that are the same in all lanes: one takes a third of a vector's.
PULLBACK_INLINE Real div_alike(Real x, Real y) { return x[0] / y[0] - Real{}; }
PULLBACK_INLINE Real sqrt_alike(Real x) {
  const Compute found = __is_same(Compute, float) ? __builtin_sqrtf(x[0]) : __builtin_sqrt(x[0]);
  return found - Real{};
}

/// A condition that is known when a loop is compiled.
template <bool value>
struct Known {
  constexpr operator bool() const { return value; }
};

/// A divisor for many vectors: its reciprocal, and a power of two that keeps that in range.
struct Divisor {
#if PULLBACK_ULP < 2
  Real value;
  PULLBACK_INLINE explicit Divisor(Real x) : value(x) {}
  PULLBACK_INLINE static Divisor alike(Real x) { return Divisor(x); }
  PULLBACK_INLINE bool is_in_range() const { return true; }
  PULLBACK_INLINE Divisor in_range() const { return *this; }
  PULLBACK_INLINE friend Real operator/(Real x, const Divisor& by) { return x / by.value; }
#else
  Real reciprocal, scale;

  /// One whose power of two is 1.
  struct InRange {
    Real reciprocal;
    PULLBACK_INLINE friend Real operator/(Real x, const InRange& by) { return x * by.reciprocal; }
  };
  /// Whether it is one in all lanes, which are the same.
  PULLBACK_INLINE bool is_in_range() const { return scale[0] == 1; }
  PULLBACK_INLINE InRange in_range() const { return {reciprocal}; }

  PULLBACK_INLINE explicit Divisor(Real x) {
    constexpr double far = PULLBACK_DOUBLE ? 0x1p1000 : 0x1p100;
    scale = where(gt(abs(x), splat(far)), splat(1 / far), splat(1.0));
    scale = where(lt(abs(x), splat(1 / far)), splat(far), scale);
    reciprocal = splat(1.0) / (x * scale);
  }
  /// The same of a number that is in all lanes.
  PULLBACK_INLINE static Divisor alike(Real x) {
    constexpr Compute far = PULLBACK_DOUBLE ? 0x1p1000 : 0x1p100;
    const Compute size = x[0] < 0 ? -x[0] : x[0];
    const Compute scale = size > far ? 1 / far : size < 1 / far ? far : 1;
    return {1 / (x[0] * scale) - Real{}, scale - Real{}};
  }
  PULLBACK_INLINE Divisor(Real reciprocal, Real scale) : reciprocal(reciprocal), scale(scale) {}
  PULLBACK_INLINE friend Real operator/(Real x, const Divisor& by) {
    return x * by.reciprocal * by.scale;
  }
#endif
};

/// Each lane's own number.
template <class Vector>
PULLBACK_INLINE Vector numbers() {
  if constexpr (sizeof(Vector) > register_bytes) {
    const auto low = numbers<typename Vector::Register>();
    return {low, low + Vector::many};
  } else {
    Vector found;
    for (int k = 0; k < int(sizeof found / sizeof found[0]); ++k) found[k] = k;
    return found;
  }
}

/// The lanes k with 0 <= first + k < size: from `begin` up to `end`.
struct Within {
  int begin, end;
  PULLBACK_INLINE Within(int64_t first, int64_t size)
      : begin(int(least(most(-first, 0), lanes))), end(int(least(most(size - first, 0), lanes))) {}
  PULLBACK_INLINE bool all() const { return begin == 0 && end == lanes; }
  PULLBACK_INLINE uint32_t bits() const {
    return begin < end ? ((1u << end) - 1u) & ~((1u << begin) - 1u) : 0u;
  }
};

PULLBACK_INLINE Truth lanes_of(Within within) {
  using Lane = TruthOf<Compute>::Lane;
  const Truth lane = numbers<Truth>();
  return Truth(lane >= Lane(within.begin)) & Truth(lane < Lane(within.end));
}
PULLBACK_INLINE Truth inside_lanes(int64_t first, int64_t size) {
  return lanes_of(Within(first, size));
}
PULLBACK_INLINE Truth inside_each(Whole place, int64_t size) {
  return logical_and(ge(place, Whole{}), lt(place, splat(size)));
}

/// The number that is in every lane.
template <class Vector>
PULLBACK_INLINE auto one(Vector x) {
  return x[0];
}

/// A place that data gives, moved inside its dimension where it is not; that is noted, for whoever
/// called decides whether it was selected. A branch, since the load does not wait for it.
PULLBACK_INLINE int64_t checked(int64_t place, int64_t size, bool& outside) {
  if (__builtin_expect(inside(place, size), true)) return place;
  outside = true;
  return clamped(place, size);
}
/// The places of the lanes; `load_at` reads those that are inside.
PULLBACK_INLINE Whole checked(Whole place, int64_t size, bool& outside) {
  if (any(logical_not(inside_each(place, size)))) outside = true;
  return place;
}

/// The whole number some elements further on, or the last one of its tensor.
template <class Stored>
PULLBACK_INLINE int64_t further(const char* from, int64_t count, const char* last) {
  const char* const there = from + count * int64_t{sizeof(Stored)};
  Stored found;
  __builtin_memcpy(&found, there < last ? there : last, sizeof found);
  return int64_t(found);
}

template <class Stored>
constexpr int64_t vector_bytes = lanes * int64_t{sizeof(Stored)};

/// Whether so many bytes do not stay in a cache that is near, whose lines need not be fetched.
PULLBACK_INLINE bool is_large(int64_t bytes) { return bytes > int64_t{1} << 20; }

/// Fetches the lines of some vectors that begin some bytes further on, wherever that is.
template <class Stored, int vectors>
PULLBACK_INLINE void fetch(const char* from, int64_t bytes) {
  const uintptr_t first = uintptr_t(from) + uintptr_t(bytes);
  constexpr int64_t line = 64, whole = vectors * vector_bytes<Stored>;
#pragma GCC unroll 16
  for (int64_t k = 0; k < whole; k += line)
    __builtin_prefetch(reinterpret_cast<const char*>(first + uintptr_t(k)));
}

/// One stored element.
template <class Stored>
PULLBACK_INLINE Carrier<Stored> element_at(const char* from) {
  Carrier<Stored> element;
  __builtin_memcpy(&element, from, sizeof element);
  return element;
}

/// One element, in every lane.
template <class Stored>
PULLBACK_INLINE Value<Stored> load_one(const char* from) {
  const Carrier<Stored> element = element_at<Stored>(from);
  if constexpr (__is_same(Stored, Compute)) {
    return element - Real{};
  } else if constexpr (__is_same(Value<Stored>, Whole)) {
    return splat(int64_t(element));
  } else {
    return unpack<Stored>(element - Packed<Stored>{});
  }
}

/// Contiguous elements in the lanes that are within, by one instruction; loaded ones are 0 in the
/// others, which are neither read nor written.
template <class Number>
constexpr bool is_masked = false;
#if !defined(__clang__) && defined(__AVX512VL__) && defined(__AVX512BW__) && PULLBACK_LANES >= 8
template <>
inline constexpr bool is_masked<Compute> = true;
template <>
inline constexpr bool is_masked<uint16_t> = true;
using Short = Lanes<short>;
PULLBACK_INLINE Real load_masked(const Compute* from, Within within) {
#if PULLBACK_DOUBLE
  return __builtin_ia32_loadupd512_mask(from, Real{}, uint8_t(within.bits()));
#elif PULLBACK_LANES == 16
  return __builtin_ia32_loadups512_mask(from, Real{}, uint16_t(within.bits()));
#else
  return __builtin_ia32_loadups256_mask(from, Real{}, uint8_t(within.bits()));
#endif
}
PULLBACK_INLINE HalfWord load_masked(const uint16_t* from, Within within) {
  const auto* const shorts = reinterpret_cast<const short*>(from);
#if PULLBACK_LANES == 16
  return HalfWord(__builtin_ia32_loaddquhi256_mask(shorts, Short{}, uint16_t(within.bits())));
#else
  return HalfWord(__builtin_ia32_loaddquhi128_mask(shorts, Short{}, uint8_t(within.bits())));
#endif
}
PULLBACK_INLINE void store_masked(Compute* to, Real value, Within within) {
#if PULLBACK_DOUBLE
  __builtin_ia32_storeupd512_mask(to, value, uint8_t(within.bits()));
#elif PULLBACK_LANES == 16
  __builtin_ia32_storeups512_mask(to, value, uint16_t(within.bits()));
#else
  __builtin_ia32_storeups256_mask(to, value, uint8_t(within.bits()));
#endif
}
PULLBACK_INLINE void store_masked(uint16_t* to, HalfWord value, Within within) {
  auto* const shorts = reinterpret_cast<short*>(to);
#if PULLBACK_LANES == 16
  __builtin_ia32_storedquhi256_mask(shorts, Short(value), uint16_t(within.bits()));
#else
  __builtin_ia32_storedquhi128_mask(shorts, Short(value), uint8_t(within.bits()));
#endif
}
using Numbers [[gnu::vector_size(register_bytes)]] = long long;
PULLBACK_INLINE Numbers load_numbers(const int64_t* from, Within within, int first) {
  const auto* const own = reinterpret_cast<const long long*>(from + first);
#if PULLBACK_REGISTER_BYTES == 64
  return __builtin_ia32_loaddqudi512_mask(own, Numbers{}, uint8_t(within.bits() >> first));
#else
  return __builtin_ia32_loaddqudi256_mask(own, Numbers{}, uint8_t(within.bits() >> first & 15));
#endif
}
PULLBACK_INLINE void store_numbers(int64_t* to, Numbers value, Within within, int first) {
  auto* const own = reinterpret_cast<long long*>(to + first);
#if PULLBACK_REGISTER_BYTES == 64
  __builtin_ia32_storedqudi512_mask(own, value, uint8_t(within.bits() >> first));
#else
  __builtin_ia32_storedqudi256_mask(own, value, uint8_t(within.bits() >> first & 15));
#endif
}
#define PULLBACK_MASKED_NUMBERS
#elif !defined(__clang__) && defined(__AVX2__) && PULLBACK_REGISTER_BYTES == 32
template <>
inline constexpr bool is_masked<Compute> = true;
PULLBACK_INLINE Real load_masked(const Compute* from, Within within) {
#if PULLBACK_DOUBLE
  using Vector = const Lanes<double>*;
  using Mask = Lanes<long long>;
  return __builtin_ia32_maskloadpd256(Vector(from), Mask(lanes_of(within)));
#else
  using Vector = const Lanes<float>*;
  return __builtin_ia32_maskloadps256(Vector(from), Lanes<int>(lanes_of(within)));
#endif
}
PULLBACK_INLINE void store_masked(Compute* to, Real value, Within within) {
#if PULLBACK_DOUBLE
  using Mask = Lanes<long long>;
  __builtin_ia32_maskstorepd256(reinterpret_cast<Lanes<double>*>(to), Mask(lanes_of(within)),
                                value);
#else
  auto* const vector = reinterpret_cast<Lanes<float>*>(to);
  __builtin_ia32_maskstoreps256(vector, Lanes<int>(lanes_of(within)), value);
#endif
}
/// The numbers of one register whose lanes are within, from the first one on.
using Numbers [[gnu::vector_size(register_bytes)]] = long long;
PULLBACK_INLINE Numbers mask_of(Within within, int first) {
  const auto lane = numbers<Numbers>() + first;
  return Numbers(lane >= within.begin) & Numbers(lane < within.end);
}
PULLBACK_INLINE Numbers load_numbers(const int64_t* from, Within within, int first) {
  const auto* const vector = reinterpret_cast<const Numbers*>(from + first);
  return __builtin_ia32_maskloadq256(vector, mask_of(within, first));
}
PULLBACK_INLINE void store_numbers(int64_t* to, Numbers value, Within within, int first) {
  auto* const vector = reinterpret_cast<Numbers*>(to + first);
  __builtin_ia32_maskstoreq256(vector, mask_of(within, first), value);
}
#define PULLBACK_MASKED_NUMBERS
#endif
#ifdef PULLBACK_MASKED_NUMBERS
/// Places in a row of a few: through memory they would take most of what it takes.
template <>
inline constexpr bool is_masked<int64_t> = true;
PULLBACK_INLINE Whole load_masked(const int64_t* from, Within within) {
#if PULLBACK_DOUBLE
  return Whole(load_numbers(from, within, 0));
#else
  using Register = Whole::Register;
  return {Register(load_numbers(from, within, 0)),
          Register(load_numbers(from, within, Whole::many))};
#endif
}
PULLBACK_INLINE void store_masked(int64_t* to, Whole value, Within within) {
#if PULLBACK_DOUBLE
  store_numbers(to, Numbers(value), within, 0);
#else
  store_numbers(to, Numbers(value.low), within, 0);
  store_numbers(to, Numbers(value.high), within, Whole::many);
#endif
}
#endif

/// Elements `step` bytes apart, in the lanes that are within; 0 in the others.
template <class Stored>
[[gnu::noinline]] Value<Stored> load_lanes(const char* from, int64_t step, int begin, int end) {
  Carrier<Stored> staged[lanes]{};
  for (int k = begin; k < end; ++k) __builtin_memcpy(staged + k, from + k * step, sizeof *staged);
  return load<Stored>(reinterpret_cast<const char*>(staged));
}

/// Contiguous elements, of which `first` is the place of the first lane in a dimension of `size`.
template <class Stored>
PULLBACK_INLINE Value<Stored> load_edge(const char* from, int64_t first, int64_t size) {
  const Within within(first, size);
  using Number = Carrier<Stored>;
  if constexpr (is_masked<Number>) {
    return unpack<Stored>(load_masked(reinterpret_cast<const Number*>(from), within));
  } else if constexpr (lanes <= 4 && sizeof(Packed<Stored>) <= register_bytes) {
    // In a register: through memory a row of 3 elements takes five times as long.
    Packed<Stored> packed{};
    for (int k = 0; k < lanes; ++k) {
      if (k < within.begin || k >= within.end) continue;
      packed[k] = element_at<Stored>(from + k * int64_t{sizeof(Number)});
    }
    return unpack<Stored>(packed);
  }
  if (within.all()) return load<Stored>(from);
  if constexpr (are_words<Stored>) {
    if (within.begin == 0) return load_words<Stored>(from, within.end);
  }
  return load_lanes<Stored>(from, sizeof(Stored), within.begin, within.end);
}

/// Elements `step` bytes apart, in the lanes from `first` to before `last`; 0 in the others.
template <class Stored>
PULLBACK_INLINE Value<Stored> load_part(const char* from, int64_t step, int64_t first,
                                        int64_t last) {
  if (first <= 0 && last >= lanes) return load_strided<Stored>(from, step);
  return load_lanes<Stored>(from, step, int(most(first, 0)), int(least(last, lanes)));
}

/// Elements at places `factor` apart, `step` bytes each; 0 outside the size.
template <class Stored>
PULLBACK_INLINE Value<Stored> load_apart(const char* from, int64_t step, int64_t first,
                                         int64_t factor, int64_t size) {
  Carrier<Stored> staged[lanes]{};
#pragma GCC unroll 1
  for (int k = 0; k < lanes; ++k) {
    if (!inside(first + k * factor, size)) continue;
    __builtin_memcpy(staged + k, from + k * step, sizeof *staged);
  }
  return load<Stored>(reinterpret_cast<const char*>(staged));
}

#if __has_builtin(__builtin_shufflevector)
/// Every so many elements of as many vectors, which lie one after the other; `part` loads each.
template <int factor, class Part, int... lane>
PULLBACK_INLINE Real take_every(Part part, std::integer_sequence<int, lane...>) {
  const Real first = part(0), second = part(1);
  constexpr int pair = 2 * lanes;
  const Real low = __builtin_shufflevector(first, second, (lane * factor) % pair...);
  if constexpr (factor == 2) return low;
  const Real third = part(2);
  if constexpr (factor == 3) {
    return __builtin_shufflevector(low, third,
                                   (lane * 3 < pair ? lane : lanes + (lane * 3 - pair) % lanes)...);
  }
  const Real fourth = part(3);
  const Real high = __builtin_shufflevector(third, fourth, (lane * factor) % pair...);
  return __builtin_shufflevector(low, high, (lane * 4 < pair ? lane : lanes + lane)...);
}
#endif

/// The same at an edge. A function: written out in every place, it would take seconds to compile.
template <class Stored, int factor>
[[gnu::noinline]] Value<Stored> load_every_edge(const char* from, int64_t step, int64_t first,
                                                int64_t size) {
#if __has_builtin(__builtin_shufflevector)
  if constexpr (__is_same(Value<Stored>, Real) && is_masked<Carrier<Stored>>) {
    constexpr auto vector = lanes * int64_t{sizeof(Stored)};
    const auto part = [&](int k) {
      return load_edge<Stored>(from + k * vector, first + k * lanes, size);
    };
    if (step == factor * int64_t{sizeof(Stored)}) {
      return take_every<factor>(part, std::make_integer_sequence<int, lanes>{});
    }
  }
#endif
  return load_apart<Stored>(from, step, first, factor, size);
}

/// Elements at every second to fourth place, `step` bytes apart; 0 outside the size.
template <class Stored, int factor>
PULLBACK_INLINE Value<Stored> load_every(const char* from, int64_t step, int64_t first,
                                         int64_t size) {
#if __has_builtin(__builtin_shufflevector)
  if constexpr (__is_same(Value<Stored>, Real)) {
    constexpr auto vector = lanes * int64_t{sizeof(Stored)};
    const bool is_dense = step == factor * int64_t{sizeof(Stored)};
    if (is_dense && first >= 0 && first + factor * lanes <= size) {
      const auto part = [&](int k) { return load<Stored>(from + k * vector); };
      return take_every<factor>(part, std::make_integer_sequence<int, lanes>{});
    }
  }
#endif
  return load_every_edge<Stored, factor>(from, step, first, size);
}

PULLBACK_INLINE Whole clamped(Whole place, int64_t size) {
  const Whole last = splat(size - 1);
  const Whole below = where(lt(place, last), place, last);
  return where(lt(below, Whole{}), Whole{}, below);
}

template <class Stored, int... lane>
PULLBACK_INLINE Value<Stored> load_each(const char* from, int64_t step, Whole place,
                                        std::integer_sequence<int, lane...>) {
  // Multiplied one by one: before AVX-512 vectors of 64-bit numbers have no product.
  if constexpr (sizeof(Packed<Stored>) > register_bytes) {
    const Carrier<Stored> staged[lanes]{element_at<Stored>(from + place[lane] * step)...};
    return load<Stored>(reinterpret_cast<const char*>(staged));
  } else {
    return unpack<Stored>(Packed<Stored>{element_at<Stored>(from + place[lane] * step)...});
  }
}
/// The same where some places are outside: a function, since that is seldom.
template <class Stored>
[[gnu::noinline]] Value<Stored> load_at_edge(const char* from, int64_t step, const int64_t* place,
                                             int64_t size) {
  Carrier<Stored> staged[lanes]{};
  for (int k = 0; k < lanes; ++k) {
    if (inside(place[k], size)) staged[k] = element_at<Stored>(from + place[k] * step);
  }
  return load<Stored>(reinterpret_cast<const char*>(staged));
}

/// Elements at the place given in each lane, in a dimension of `size`; 0 outside.
template <class Stored>
PULLBACK_INLINE Value<Stored> load_at(const char* from, int64_t step, Whole place, int64_t size) {
  if (__builtin_expect(any(logical_not(inside_each(place, size))), false)) {
    int64_t places[lanes];
    store<int64_t>(reinterpret_cast<char*>(places), place);
    return load_at_edge<Stored>(from, step, places, size);
  }
  return load_each<Stored>(from, step, place, std::make_integer_sequence<int, lanes>{});
}

/// Adds the first `count` lanes for which `counts` is true, each at places of its own.
template <int dims, class Counts>
PULLBACK_INLINE void add_where(char* to, const int64_t (&steps)[dims], const Whole (&places)[dims],
                               Real value, int64_t count, Counts counts) {
  // Numbers one by one: vectors of 64-bit ones fill several registers, and take twice as long.
  int64_t own[dims][lanes];
  for (int d = 0; d < dims; ++d) __builtin_memcpy(own[d], &places[d], sizeof own[d]);
  Compute more[lanes];
  __builtin_memcpy(more, &value, sizeof more);
  const int last = int(least(count, lanes));
  for (int k = 0; k < last; ++k) {
    if (!counts(k)) continue;
    char* element = to;
    for (int d = 0; d < dims; ++d) element += own[d][k] * steps[d];
    Compute total;
    __builtin_memcpy(&total, element, sizeof total);
    total += more[k];
    __builtin_memcpy(element, &total, sizeof total);
  }
}

/// Adds the first `count` lanes: of some dimensions each says where, and an element more is so many
/// bytes.
template <int dims>
PULLBACK_INLINE void add_at(char* to, const int64_t (&steps)[dims], const Whole (&places)[dims],
                            Real value, int64_t count) {
  add_where(to, steps, places, value, count, [](int) { return true; });
}

/// The same of those for which all of some numbers are inside of their sizes.
template <int dims, int guards>
PULLBACK_INLINE void add_at(char* to, const int64_t (&steps)[dims], const Whole (&places)[dims],
                            Real value, int64_t count, const int64_t (&sizes)[guards],
                            const Whole (&guarded)[guards]) {
  int64_t own[guards][lanes];
  for (int d = 0; d < guards; ++d) __builtin_memcpy(own[d], &guarded[d], sizeof own[d]);
  add_where(to, steps, places, value, count, [&](int k) {
    bool counts = true;
    for (int d = 0; d < guards; ++d) counts &= inside(own[d][k], sizes[d]);
    return counts;
  });
}

/// The first `count` lanes.
template <class Stored>
PULLBACK_INLINE void store_edge(char* to, Value<Stored> value, int64_t count) {
  if (count >= lanes) return store<Stored>(to, value);
  using Number = Carrier<Stored>;
  if constexpr (is_masked<Number>) {
    store_masked(reinterpret_cast<Number*>(to), pack<Stored>(value), Within(0, count));
  } else if constexpr (are_words<Stored>) {
    store_words<Stored>(to, value, int(count));
  } else {
    store_some<Stored>(to, sizeof(Stored), value, count);
  }
}

/// Adds the first `count` lanes to as many elements in a row: of some dimensions each says where.
template <int dims>
PULLBACK_INLINE void add_row(char* to, const int64_t (&steps)[dims], const Whole (&places)[dims],
                             Real value, int64_t count) {
  for (int d = 0; d < dims; ++d) to += one(places[d]) * steps[d];
  store_edge<Compute>(to, load_edge<Compute>(to, 0, count) + value, count);
}

/// The same, if all of some numbers are inside of their sizes.
template <int dims, int guards>
PULLBACK_INLINE void add_row(char* to, const int64_t (&steps)[dims], const Whole (&places)[dims],
                             Real value, int64_t count, const int64_t (&sizes)[guards],
                             const Whole (&guarded)[guards]) {
  for (int d = 0; d < guards; ++d) {
    if (!inside(one(guarded[d]), sizes[d])) return;
  }
  add_row(to, steps, places, value, count);
}

template <class Stored>
PULLBACK_INLINE void store_one(char* to, Value<Stored> value) {
  store_some<Stored>(to, 0, value, 1);
}

}  // namespace pullback::index
