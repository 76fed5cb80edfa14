/// Places that are divided by a number: neighbours read neighbours, each of them several times.
#pragma once

#include "lanes.h"

namespace pullback::index {

/// The places of the lanes from the first one on, divided by a number and rounded down.
template <int divisor>
PULLBACK_INLINE Whole divided(int64_t first) {
  const int64_t quotient = floor_divide(first, int64_t{divisor});
  const Whole rest = splat(first - quotient * divisor) + numbers<Whole>();
  if constexpr (divisor < lanes) {
    constexpr int64_t inverse = (int64_t{1} << 20) / divisor + 1;  // exact for numbers this small
    static_assert(divisor + lanes < 1 << 9);
    return splat(quotient) + ((rest * inverse) >> 20);
  }
  return splat(quotient) - ((splat(int64_t{divisor} - 1) - rest) >> 63);  // one more, or not
}

/// Whether what a division of the lanes' places leaves, moved, is inside a size.
template <int divisor>
PULLBACK_INLINE Truth rest_inside(int64_t first, int64_t shift, int64_t size) {
  using Lane = TruthOf<Compute>::Lane;
  Truth lane{};
#pragma GCC unroll 64
  for (int k = 0; k < lanes; ++k) lane[k] = k % divisor;
  const int64_t begin = first - floor_divide(first, int64_t{divisor}) * divisor;
  const Truth more = lane + Lane(begin), all = Truth{} + Lane{divisor};
  const Truth rest = more - (Truth(more >= all) & all);
  const Truth low = Truth{} + Lane(most(-shift, 0));
  const Truth end = Truth{} + Lane(least(size - shift, divisor));
  return Truth(rest >= low) & Truth(rest < end);
}

/// Each element in as many lanes as the number says, the first one in `rest` fewer.
template <int divisor, class Part, int... k>
PULLBACK_INLINE Part repeat_each(Part dense, int64_t rest, std::integer_sequence<int, k...>) {
#if defined(__clang__)
  return Part{dense[(rest + k) / divisor]...};
#else
  using Places = decltype(dense == dense);  // whole numbers as wide as the elements
  using Place = std::decay_t<decltype(Places{}[0])>;
  const Places lane{Place(k % divisor)...}, before{Place(k / divisor)...};
  // No lane is that far where the next element is in none: a byte holds the number.
  const Place next = Place(least(divisor - rest, int64_t{sizeof...(k)}));
  return __builtin_shuffle(dense, before - Places(lane >= next));
#endif
}

/// Elements next to each other of which some are outside the size, which are 0.
template <class Number, int many>
[[gnu::noinline]] void copy_inside(Number* to, const char* from, int64_t first, int64_t size) {
  for (int k = 0; k < many; ++k) {
    to[k] = 0;
    if (inside(first + k, size)) __builtin_memcpy(to + k, from + k * sizeof *to, sizeof *to);
  }
}

/// How elements of one kind lie in registers: `many` in each.
template <class Stored>
struct Registers {
  using Number = Carrier<Stored>;
  static constexpr int of_register = register_bytes / int{sizeof(Number)};
  static constexpr int many = of_register < lanes ? of_register : lanes;
  static constexpr auto each = std::make_integer_sequence<int, many>{};
  using Part [[gnu::vector_size(many * sizeof(Number))]] = Number;

  /// Elements next to each other; 0 outside.
  PULLBACK_INLINE static Part load(const char* from, int64_t first, int64_t size) {
    Part found;
    if (__builtin_expect(first >= 0 && first + many <= size, true)) {
      __builtin_memcpy(&found, from, sizeof found);
    } else {
      Number numbers[many];
      copy_inside<Number, many>(numbers, from, first, size);
      __builtin_memcpy(&found, numbers, sizeof found);
    }
    return found;
  }
};

/// All lanes, a register at a time: `load` gives those from a place on.
template <class Stored, class Load>
PULLBACK_INLINE Value<Stored> load_parts(int64_t place, Load load) {
  using Own = Registers<Stored>;
  typename Own::Part parts[lanes / Own::many];
#pragma GCC unroll 8
  for (int part = 0; part < lanes / Own::many; ++part) parts[part] = load(place + part * Own::many);
  return unpack<Stored>(__builtin_bit_cast(Packed<Stored>, parts));
}

/// Elements next to each other, `shift` and the lane's place divided by a number far; 0 outside.
template <class Stored, int divisor>
PULLBACK_INLINE Value<Stored> load_divided(const char* row, int64_t place, int64_t shift,
                                           int64_t size) {
  using Own = Registers<Stored>;
  using Number = typename Own::Number;
  using Part = typename Own::Part;
  constexpr int many = Own::many;
  return load_parts<Stored>(place, [=](int64_t here) __attribute__((always_inline)) -> Part {
    const int64_t quotient = floor_divide(here, int64_t{divisor});
    const int64_t first = quotient + shift, rest = here - quotient * divisor;
    const char* const from = row + first * int64_t{sizeof(Number)};
    if (divisor >= many && rest + many <= divisor && inside(first, size)) {
      Number same;
      __builtin_memcpy(&same, from, sizeof same);
      return same - Part{};
    }
    return repeat_each<divisor>(Own::load(from, first, size), rest, Own::each);
  });
}

/// Whether all that `load_divided` reads is inside.
template <int divisor>
PULLBACK_INLINE bool load_divided_inside(int64_t place, int64_t shift, int64_t size) {
  const int64_t last = floor_divide(place + lanes - 1, int64_t{divisor});
  return floor_divide(place, int64_t{divisor}) + shift >= 0 && last + shift < size;
}

/// The first elements in turn, as many as the number says; the first lane has number `rest`.
template <int divisor, class Part, int... k>
PULLBACK_INLINE Part repeat_all(Part dense, int64_t rest, std::integer_sequence<int, k...>) {
#if defined(__clang__)
  return Part{dense[(rest + k) % divisor]...};
#else
  using Places = decltype(dense == dense);
  using Place = std::decay_t<decltype(Places{}[0])>;
  const Places all = Places{} + Place(divisor), place = Places{Place(k % divisor)...} + Place(rest);
  return __builtin_shuffle(dense, place - (Places(place >= all) & all));
#endif
}

/// The elements of two vectors, one after the other, from number `first` on.
template <class Part, int... k>
PULLBACK_INLINE Part join_from(Part one, Part other, int64_t first,
                               std::integer_sequence<int, k...>) {
#if defined(__clang__)
  constexpr int64_t many = sizeof...(k);
  return Part{(first + k < many ? one[first + k] : other[first + k - many])...};
#else
  using Places = decltype(one == one);
  using Place = std::decay_t<decltype(Places{}[0])>;
  return __builtin_shuffle(one, other, Places{Place(k)...} + Place(first));
#endif
}

/// Elements that some numbers say, each of those of the lanes' places modulo one; 0 outside.
template <int divisor, class Number, int many>
[[gnu::noinline]] void copy_turned(Number* to, const char* from, int64_t rest, int64_t shift,
                                   int64_t size) {
  for (int k = 0; k < many; ++k) {
    const int64_t turned = (rest + k) % divisor;
    to[k] = 0;
    if (inside(turned + shift, size))
      __builtin_memcpy(to + k, from + turned * sizeof *to, sizeof *to);
  }
}

/// Elements next to each other over and over: `shift` and the lane's place modulo a number far.
template <class Stored, int divisor>
PULLBACK_INLINE Value<Stored> load_turned(const char* row, int64_t place, int64_t shift,
                                          int64_t size) {
  using Own = Registers<Stored>;
  using Number = typename Own::Number;
  using Part = typename Own::Part;
  constexpr int many = Own::many;
  constexpr int64_t one = sizeof(Number);
  const char* const from = row + shift * one;
  const bool is_whole = __builtin_expect(shift >= 0 && shift + divisor <= size, true);
  return load_parts<Stored>(place, [=](int64_t here) __attribute__((always_inline)) -> Part {
    const int64_t rest = here - floor_divide(here, int64_t{divisor}) * divisor;
    Part found{};
    if (!is_whole) {
      Number numbers[many];
      copy_turned<divisor, Number, many>(numbers, from, rest, shift, size);
      __builtin_memcpy(&found, numbers, sizeof found);
      return found;
    }
    if constexpr (divisor >= many) {
      const int64_t first = least(rest, divisor - many);
      __builtin_memcpy(&found, from + first * one, sizeof found);
      if (rest == first) return found;
      Part begin;
      __builtin_memcpy(&begin, from, sizeof begin);
      return join_from(found, begin, rest - first, Own::each);
    } else if constexpr (is_masked<Number> && many == lanes) {
      found = Part(load_masked(reinterpret_cast<const Number*>(from), Within(0, divisor)));
    } else {
#pragma GCC unroll 64
      for (int k = 0; k < divisor; ++k) {
        Number number;
        __builtin_memcpy(&number, from + k * one, sizeof number);
        found[k] = number;
      }
    }
    return repeat_all<divisor>(found, rest, Own::each);
  });
}

/// Whether all that `load_turned` may read is inside.
template <int divisor>
PULLBACK_INLINE bool load_turned_inside(int64_t, int64_t shift, int64_t size) {
  return shift >= 0 && shift + divisor <= size;
}

/// Two vectors as one.
template <class Part, int... k>
PULLBACK_INLINE auto join(Part one, Part other, std::integer_sequence<int, k...>) {
  return __builtin_shufflevector(one, other, k...);
}

/// As many vectors as the number says as one; `few` elements of each are read, `step` bytes apart.
template <class Number, int few, int divisor>
PULLBACK_INLINE auto load_rows(const char* from, int64_t step) {
  if constexpr (divisor == 1) {
    using Part [[gnu::vector_size(few * sizeof(Number))]] = Number;
    Part found;
    __builtin_memcpy(&found, from, sizeof found);
    return found;
  } else {
    const auto one = load_rows<Number, few, divisor / 2>(from, step);
    const auto other = load_rows<Number, few, divisor / 2>(from + step * (divisor / 2), step);
    return join(one, other, std::make_integer_sequence<int, few * divisor>{});
  }
}

/// The elements of as many vectors as the number says in turn; they are given one after the other.
template <int divisor, class Part, int... k>
PULLBACK_INLINE Part interleave(Part rows, std::integer_sequence<int, k...>) {
  constexpr int few = int{sizeof...(k)} / divisor;
  return __builtin_shufflevector(rows, rows, (k % divisor * few + k / divisor)...);
}

/// The elements of each block of as many as the number says, the last one first.
template <int divisor, class Part, int... k>
PULLBACK_INLINE Part reverse_each(Part dense, std::integer_sequence<int, k...>) {
  return __builtin_shufflevector(dense, dense,
                                 (k / divisor * divisor + divisor - 1 - k % divisor)...);
}

/// Elements that lie `far` bytes for what the lane's place is divided by a number, and `step` bytes
/// for what is left.
template <class Stored, int divisor>
PULLBACK_INLINE Value<Stored> load_interleaved(const char* origin, int64_t place, int64_t step,
                                               int64_t far) {
  using Own = Registers<Stored>;
  using Number = typename Own::Number;
  using Part = typename Own::Part;
  constexpr int many = Own::many, few = many / divisor;
  constexpr bool is_even = divisor <= many && many % divisor == 0;
  return load_parts<Stored>(place, [=](int64_t here) __attribute__((always_inline)) -> Part {
    const int64_t quotient = floor_divide(here, int64_t{divisor});
    const int64_t rest = here - quotient * divisor;
    const char* const from = origin + quotient * far;
    Part found{};
    if constexpr (is_even) {
      if (rest == 0 && far == int64_t{sizeof(Number)})
        return interleave<divisor>(load_rows<Number, few, divisor>(from, step), Own::each);
      if (rest == 0 && step == -int64_t{sizeof(Number)} && far == -step * divisor) {
        __builtin_memcpy(&found, from + step * (divisor - 1), sizeof found);
        return reverse_each<divisor>(found, Own::each);
      }
    }
#pragma GCC unroll 64
    for (int k = 0; k < many; ++k) {
      const int64_t turned = rest + k;
      Number number;
      __builtin_memcpy(&number, from + turned / divisor * far + turned % divisor * step,
                       sizeof number);
      found[k] = number;
    }
    return found;
  });
}

}  // namespace pullback::index
