/// Loads and stores of `lanes` elements, of any dtype and stride.
#pragma once

#include "vector.h"

namespace pullback::formula {

struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};

/// The number that carries the bits of one stored element.
template <class Stored>
struct CarrierOf {
  using Number = Stored;
};
template <>
struct CarrierOf<Half> {
  using Number = uint16_t;
};
template <>
struct CarrierOf<Bfloat16> {
  using Number = uint16_t;
};
template <>
struct CarrierOf<bool> {
  using Number = uint8_t;
};
template <class Stored>
using Carrier = typename CarrierOf<Stored>::Number;
/// As many stored elements as there are lanes, next to each other.
template <class Stored>
struct PackedOf {
  using Vector = Lanes<Carrier<Stored>>;
};
template <>
struct PackedOf<int64_t> {
  using Vector = Whole;
};
template <class Stored>
using Packed = typename PackedOf<Stored>::Vector;

using Single = Lanes<float>;
using Word = Lanes<uint32_t>;
using HalfWord = Lanes<uint16_t>;

// g++ converts vectors of _Float16 one lane at a time, so we use the instructions directly.
// Elsewhere: M. Dukhan's branch-free conversions (github.com/Maratyszcza/FP16).
#if defined(__F16C__) && !defined(__clang__) && PULLBACK_LANES == 16
typedef short Sixteen __attribute__((vector_size(32)));
PULLBACK_INLINE Single from_half(HalfWord half) {
  return __builtin_ia32_vcvtph2ps512_mask(Sixteen(half), Single{}, -1, 4);
}
PULLBACK_INLINE HalfWord to_half(Single x) {
  return HalfWord(__builtin_ia32_vcvtps2ph512_mask(x, 0, Sixteen{}, -1));
}
#elif defined(__F16C__) && !defined(__clang__) && PULLBACK_LANES == 8
typedef short Eight __attribute__((vector_size(16)));
PULLBACK_INLINE Single from_half(HalfWord half) { return __builtin_ia32_vcvtph2ps256(Eight(half)); }
PULLBACK_INLINE HalfWord to_half(Single x) { return HalfWord(__builtin_ia32_vcvtps2ph256(x, 0)); }
#else
PULLBACK_INLINE Word choose(Word condition, Word a, Word b) {
  return (condition & a) | (~condition & b);
}
PULLBACK_INLINE Single from_half(HalfWord half) {
  const Word word = __builtin_convertvector(half, Word) << 16, twice = word + word;
  const Word normal = Word(Single((twice >> 4) + (0xE0u << 23)) * 0x1p-112f);
  const Word denormal = Word(Single((twice >> 17) | (126u << 23)) - 0.5f);
  return Single((word & 0x80000000u) | choose(Word(twice < (1u << 27)), denormal, normal));
}
PULLBACK_INLINE HalfWord to_half(Single x) {
  const Word word = Word(x), twice = word + word, magnitude = word & 0x7FFFFFFFu;
  // Too large values become infinite; then adding a power of two rounds at the half's last bit.
  const Single scaled = (Single(magnitude) * 0x1p+112f) * 0x1p-110f;
  const Word high = twice & 0xFF000000u, least = Word{} + 0x71000000u;
  const Word bias = (choose(Word(high < least), least, high) >> 1) + 0x07800000u;
  const Word rounded = Word(Single(bias) + scaled);
  const Word finite = ((rounded >> 13) & 0x7C00u) + (rounded & 0x0FFFu);
  const Word kept = choose(Word(twice > 0xFF000000u), Word{} + 0x7E00u, finite);
  return __builtin_convertvector(((word >> 16) & 0x8000u) | kept, HalfWord);
}
#endif

// g++ converts in four instructions, and shifts.
#if defined(__AVX512BW__) && !defined(__clang__) && PULLBACK_LANES == 16
/// One permutation, which leaves the lower halves 0.
PULLBACK_INLINE Single from_bfloat16(HalfWord stored) {
  typedef short Shorts __attribute__((vector_size(64)));
  Shorts to;
  for (int k = 0; k < 32; ++k) to[k] = short(k / 2);
  typedef int Low __attribute__((vector_size(32)));
  const auto from = Shorts(__builtin_ia32_si512_256si(Low(stored)));
  return Single(__builtin_ia32_permvarhi512_mask(from, to, Shorts{}, 0xAAAAAAAA));
}
#elif defined(__AVX2__) && !defined(__clang__) && PULLBACK_LANES == 8
PULLBACK_INLINE Single from_bfloat16(HalfWord stored) {
  typedef short Shorts __attribute__((vector_size(16)));
  return Single(Word(__builtin_ia32_pmovzxwd256(Shorts(stored))) << 16);
}
#else
PULLBACK_INLINE Single from_bfloat16(HalfWord stored) {
  return Single(__builtin_convertvector(stored, Word) << 16);
}
#endif

// To nearest even: adds half of the last place kept, less one unless that place is odd. A NaN
// might carry over into infinity, so it becomes the NaN that PyTorch writes.
PULLBACK_INLINE HalfWord to_bfloat16(Single x) {
  const Word word = Word(x), nan = Word(x != x);
  const Word rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
  return __builtin_convertvector((nan & 0x7FC0u) | (~nan & rounded), HalfWord);
}

/// The type in registers of a stored type: floating ones are Real, integers Whole, bool Truth.
template <class Stored>
PULLBACK_INLINE auto unpack(Packed<Stored> packed) {
  if constexpr (__is_same(Stored, Half)) {
    return __builtin_convertvector(from_half(packed), Real);
  } else if constexpr (__is_same(Stored, Bfloat16)) {
    return __builtin_convertvector(from_bfloat16(packed), Real);
  } else if constexpr (__is_same(Stored, float) || __is_same(Stored, double)) {
    return __builtin_convertvector(packed, Real);
  } else if constexpr (__is_same(Stored, bool)) {
    return Truth(__builtin_convertvector(packed, Truth) != 0);
  } else if constexpr (__is_same(Stored, int64_t)) {
    return packed;
  } else {
    return widened<Stored>(packed);
  }
}

template <class Stored>
using Value = decltype(unpack<Stored>(Packed<Stored>{}));

template <class Stored>
PULLBACK_INLINE Packed<Stored> pack(Value<Stored> value) {
  if constexpr (__is_same(Stored, Half)) {
    return to_half(__builtin_convertvector(value, Single));
  } else if constexpr (__is_same(Stored, Bfloat16)) {
    return to_bfloat16(__builtin_convertvector(value, Single));
  } else if constexpr (__is_same(Stored, int64_t)) {
    return value;
  } else if constexpr (__is_same(Value<Stored>, Whole)) {
    return narrowed<Stored>(value);
  } else {
    // A true lane is -1.
    if constexpr (__is_same(Stored, bool)) value &= 1;
    return __builtin_convertvector(value, Packed<Stored>);
  }
}

template <class Stored>
PULLBACK_INLINE Value<Stored> load(const char* from) {
  Packed<Stored> packed;
  if constexpr (__is_same(Stored, int64_t) && sizeof packed > register_bytes) {
    // As one copy it would go through memory.
    __builtin_memcpy(&packed.low, from, sizeof packed.low);
    __builtin_memcpy(&packed.high, from + sizeof packed.low, sizeof packed.high);
  } else {
    __builtin_memcpy(&packed, from, sizeof packed);
  }
  return unpack<Stored>(packed);
}

template <class Stored>
PULLBACK_INLINE void store(char* to, Value<Stored> value) {
  const Packed<Stored> packed = pack<Stored>(value);
  if constexpr (__is_same(Stored, int64_t) && sizeof packed > register_bytes) {
    __builtin_memcpy(to, &packed.low, sizeof packed.low);
    __builtin_memcpy(to + sizeof packed.low, &packed.high, sizeof packed.high);
  } else {
    __builtin_memcpy(to, &packed, sizeof packed);
  }
}

/// The first `count` lanes. The others repeat the last of them, so that they take no slow path that
/// the values themselves do not take.
template <class Stored>
PULLBACK_INLINE Value<Stored> load_some(const char* from, int64_t stride, int64_t count) {
  char staged[sizeof(Packed<Stored>)];
  for (int64_t k = 0; k < lanes; ++k) {
    const char* const element = from + (k < count ? k : count - 1) * stride;
    __builtin_memcpy(staged + k * int64_t(sizeof(Stored)), element, sizeof(Stored));
  }
  return load<Stored>(staged);
}

template <class Stored>
PULLBACK_INLINE void store_some(char* to, int64_t stride, Value<Stored> value, int64_t count) {
  char staged[sizeof(Packed<Stored>)];
  store<Stored>(staged, value);
  for (int64_t k = 0; k < count; ++k) {
    __builtin_memcpy(to + k * stride, staged + k * int64_t(sizeof(Stored)), sizeof(Stored));
  }
}

/// Whether the lanes are eight elements of two bytes, which are two words.
template <class Stored>
constexpr bool are_words =
    lanes == 8 && sizeof(Stored) == 2 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
typedef uint64_t Words __attribute__((vector_size(16)));

/// Up to four elements of two bytes, the first in the lowest bits; 0 in the others.
PULLBACK_INLINE uint64_t load_word(const char* from, int count) {
  uint64_t word = 0;
  if (count >= 4) {
    __builtin_memcpy(&word, from, 8);
    return word;
  }
  if (count >= 2) __builtin_memcpy(&word, from, 4);
  if (count == 1 || count == 3) {
    uint16_t last;
    __builtin_memcpy(&last, from + 2 * (count - 1), 2);
    word |= uint64_t{last} << (16 * (count - 1));
  }
  return word;
}
PULLBACK_INLINE void store_word(char* to, uint64_t word, int count) {
  if (count >= 4) {
    __builtin_memcpy(to, &word, 8);
    return;
  }
  if (count >= 2) __builtin_memcpy(to, &word, 4);
  if (count == 1 || count == 3) {
    const auto last = uint16_t(word >> (16 * (count - 1)));
    __builtin_memcpy(to + 2 * (count - 1), &last, 2);
  }
}

/// The first lanes: through memory, one by one, they take three times as long.
template <class Stored>
[[gnu::noinline]] Value<Stored> load_words(const char* from, int count) {
  const Words words{load_word(from, count), load_word(from + 8, count - 4)};
  return unpack<Stored>(Packed<Stored>(words));
}
template <class Stored>
[[gnu::noinline]] void store_words(char* to, Value<Stored> value, int count) {
  const auto words = Words(pack<Stored>(value));
  store_word(to, words[0], count);
  store_word(to + 8, words[1], count - 4);
}

/// The stride is in bytes; it may be 0 or negative.
template <class Stored>
PULLBACK_INLINE Value<Stored> load_strided(const char* from, int64_t stride) {
  return load_some<Stored>(from, stride, lanes);
}

template <class Stored>
PULLBACK_INLINE void store_strided(char* to, int64_t stride, Value<Stored> value) {
  store_some<Stored>(to, stride, value, lanes);
}

}  // namespace pullback::formula
