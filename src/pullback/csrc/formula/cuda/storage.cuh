/// Loads and stores: each dtype's type in memory and in registers.
#pragma once

#include "numbers.cuh"

namespace pullback::formula {

struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};

// CUDA's own types would need cuda_fp16.h, which NVRTC does not bring.
// CUDA on the CPU does not run these instructions.
#if defined(__CUDA_ARCH__) && !defined(CUDA_ON_CPU)
PULLBACK_INLINE float from_half(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
PULLBACK_INLINE uint16_t to_half(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
PULLBACK_INLINE uint32_t bits_of(float value) { return __float_as_uint(value); }
PULLBACK_INLINE float from_bits(uint32_t bits) { return __uint_as_float(bits); }
#else
PULLBACK_INLINE uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
PULLBACK_INLINE float from_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }

// M. Dukhan's branch-free conversions (github.com/Maratyszcza/FP16), as in ../storage.h.
PULLBACK_INLINE float from_half(uint16_t half) {
  const uint32_t word = uint32_t(half) << 16, twice = word + word;
  const float normal = from_bits((twice >> 4) + (0xE0u << 23)) * 0x1p-112f;
  const float denormal = from_bits((twice >> 17) | (126u << 23)) - 0.5f;
  return from_bits((word & 0x80000000u) | bits_of(twice < (1u << 27) ? denormal : normal));
}
PULLBACK_INLINE uint16_t to_half(float x) {
  const uint32_t word = bits_of(x), twice = word + word;
  // Too large values become infinite; then adding a power of two rounds at the half's last bit.
  const float scaled = (from_bits(word & 0x7FFFFFFFu) * 0x1p+112f) * 0x1p-110f;
  const uint32_t high = twice & 0xFF000000u, least = 0x71000000u;
  const uint32_t rounded =
      bits_of(from_bits(((high < least ? least : high) >> 1) + 0x07800000u) + scaled);
  const uint32_t finite = ((rounded >> 13) & 0x7C00u) + (rounded & 0x0FFFu);
  return uint16_t(((word >> 16) & 0x8000u) | (twice > 0xFF000000u ? 0x7E00u : finite));
}
#endif

PULLBACK_INLINE float from_bfloat16(uint16_t bits) { return from_bits(uint32_t(bits) << 16); }
PULLBACK_INLINE uint16_t to_bfloat16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(CUDA_ON_CPU)
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  // To nearest even: adds half of the last place kept, less one unless that place is odd. A NaN
  // might carry over into infinity, so it becomes the NaN that PyTorch writes.
  const uint32_t word = bits_of(value);
  return value != value ? 0x7FC0 : uint16_t((word + 0x7FFFu + ((word >> 16) & 1u)) >> 16);
#endif
}

/// A stored type: its type in registers (`Value`), the type that carries its bits, and the
/// conversions between them. Integers are Whole.
template <class Type>
struct Storage {
  using Value = Whole;
  using Bits = Type;
  PULLBACK_INLINE static Value load(Bits bits) { return bits; }
  PULLBACK_INLINE static Bits store(Value value) { return Bits(value); }
};
template <class Type>
struct Floating {
  using Value = Real;
  using Bits = Type;
  PULLBACK_INLINE static Value load(Bits bits) { return Real(bits); }
  PULLBACK_INLINE static Bits store(Value value) { return Bits(value); }
};
template <>
struct Storage<float> : Floating<float> {};
template <>
struct Storage<double> : Floating<double> {};
template <>
struct Storage<Half> {
  using Value = Real;
  using Bits = uint16_t;
  PULLBACK_INLINE static Value load(Bits bits) { return from_half(bits); }
  PULLBACK_INLINE static Bits store(Value value) { return to_half(float(value)); }
};
template <>
struct Storage<Bfloat16> {
  using Value = Real;
  using Bits = uint16_t;
  PULLBACK_INLINE static Value load(Bits bits) { return from_bfloat16(bits); }
  PULLBACK_INLINE static Bits store(Value value) { return to_bfloat16(float(value)); }
};
template <>
struct Storage<bool> {
  using Value = Truth;
  using Bits = uint8_t;
  PULLBACK_INLINE static Value load(Bits bits) { return bits != 0; }
  PULLBACK_INLINE static Bits store(Value value) { return value; }
};
template <class Type>
using Value = typename Storage<Type>::Value;

/// `count` neighbours in registers; aligned, so that one instruction moves them all.
template <class Type, int count>
struct alignas(count * sizeof(Type)) Pack {
  typename Storage<Type>::Bits bits[count];
  PULLBACK_INLINE Value<Type> operator[](int k) const { return Storage<Type>::load(bits[k]); }
};

/// Reads neighbours, or the one element that stands for all of them.
template <class Type, int count>
PULLBACK_INLINE Pack<Type, count> read(const char* from, uint32_t at, bool repeated) {
  using Bits = typename Storage<Type>::Bits;
  if (!repeated) return *reinterpret_cast<const Pack<Type, count>*>(from + at * sizeof(Type));
  Pack<Type, count> pack;
  const Bits element = *reinterpret_cast<const Bits*>(from);
  PULLBACK_UNROLL
  for (int k = 0; k < count; ++k) pack.bits[k] = element;
  return pack;
}

/// One value that the body writes; it goes to the pack when the body has been called.
template <class Type>
struct Written {
  typename Storage<Type>::Bits& to;
  Value<Type> value;
  PULLBACK_INLINE explicit Written(typename Storage<Type>::Bits& to) : to(to) {}
  PULLBACK_INLINE operator Value<Type>&() { return value; }
  PULLBACK_INLINE ~Written() { to = Storage<Type>::store(value); }
};

/// Neighbours of an output, and where they go.
template <class Type, int count>
struct Sink {
  char* to;
  Pack<Type, count> pack;
  PULLBACK_INLINE explicit Sink(char* to) : to(to) {}
  PULLBACK_INLINE Written<Type> operator[](int k) { return Written<Type>(pack.bits[k]); }
  PULLBACK_INLINE void write() const { *reinterpret_cast<Pack<Type, count>*>(to) = pack; }
};

}  // namespace pullback::formula
