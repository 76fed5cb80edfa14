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

/// Elements next to each other, `shift` and the lane's place divided by a number far; 0 outside.
template <class Stored, int divisor>
PULLBACK_INLINE Value<Stored> load_divided(const char* row, int64_t place, int64_t shift,
                                           int64_t size) {
  using Number = Carrier<Stored>;
  constexpr int of_register = register_bytes / int{sizeof(Number)};
  constexpr int many = of_register < lanes ? of_register : lanes;
  using Part [[gnu::vector_size(many * sizeof(Number))]] = Number;
  Part parts[lanes / many];
#pragma GCC unroll 8
  for (int part = 0; part < lanes / many; ++part) {
    const int64_t here = place + part * many, quotient = floor_divide(here, int64_t{divisor});
    const int64_t first = quotient + shift, rest = here - quotient * divisor;
    const char* const from = row + first * int64_t{sizeof(Number)};
    if (divisor >= many && rest + many <= divisor && inside(first, size)) {
      Number same;
      __builtin_memcpy(&same, from, sizeof same);
      parts[part] = same - Part{};
      continue;
    }
    Part dense;
    if (__builtin_expect(first >= 0 && first + many <= size, true)) {
      __builtin_memcpy(&dense, from, sizeof dense);
    } else {
      Number numbers[many];
      copy_inside<Number, many>(numbers, from, first, size);
      __builtin_memcpy(&dense, numbers, sizeof dense);
    }
    parts[part] = repeat_each<divisor>(dense, rest, std::make_integer_sequence<int, many>{});
  }
  return unpack<Stored>(__builtin_bit_cast(Packed<Stored>, parts));
}

}  // namespace pullback::index
