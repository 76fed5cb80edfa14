/// The two formats of 16 bits, and every way to round a number to one of them.
#pragma once

#include <stdint.h>

namespace cuda_on_cpu {

enum class Rounding { nearest, zero, up, down };

/// Any number: mantissa * 2^exponent, with its sign.
struct Exact {
  bool negative;
  uint64_t mantissa;
  int exponent;
};

constexpr Exact exact(double x) {
  const auto bits = __builtin_bit_cast(uint64_t, x);
  const int field = static_cast<int>(bits >> 52 & 0x7FF);
  const uint64_t fraction = bits & 0xFFFFFFFFFFFFFULL;
  if (field == 0) return {bits >> 63 != 0, fraction, -1074};
  return {bits >> 63 != 0, fraction | 1ULL << 52, field - 1075};
}
template <class Integer>
constexpr Exact exact_integer(Integer x) {
  const bool negative = x < 0;
  const auto bits = static_cast<uint64_t>(x);
  return {negative, negative ? ~bits + 1 : bits, 0};
}

/// Whether the part that is cut off, `rest` out of `unit`, rounds the value `kept` away from zero.
constexpr bool rounds_away(Rounding rounding, bool negative, bool odd, uint64_t rest,
                           uint64_t half) {
  switch (rounding) {
    case Rounding::nearest: return rest > half || (rest == half && odd);
    case Rounding::up: return rest != 0 && !negative;
    case Rounding::down: return rest != 0 && negative;
    default: return false;
  }
}

/// `precision` counts the bit that is not stored; `least` is a normal number's least exponent.
template <int precision, int least, uint16_t infinity>
constexpr uint16_t round_finite(const Exact& x, Rounding rounding) {
  const uint16_t sign = x.negative ? 0x8000 : 0;
  if (x.mantissa == 0) return sign;
  const int exponent = 63 - __builtin_clzll(x.mantissa) + x.exponent;
  const int stored = exponent < least ? least : exponent;
  const int cut = stored - (precision - 1) - x.exponent;  // bits of the mantissa to cut off
  uint64_t kept = 0, rest = 1, half = 2;  // less than half a unit, unless the bits are there
  if (cut <= 0) {
    // More than 64 bits up there is no finite number of either format.
    if (exponent > 128) kept = 1ULL << 62;
    else kept = x.mantissa << -cut, rest = 0;
  } else if (cut < 64) {
    kept = x.mantissa >> cut;
    rest = x.mantissa & ((1ULL << cut) - 1);
    half = 1ULL << (cut - 1);
  }
  if (rounds_away(rounding, x.negative, kept & 1, rest, half)) ++kept;
  // The mantissa's leading bit, and a carry, count up the exponent.
  const uint64_t magnitude = (static_cast<uint64_t>(stored - least) << (precision - 1)) + kept;
  if (magnitude < infinity) return static_cast<uint16_t>(sign | magnitude);
  const bool stays_finite =
      rounding == Rounding::zero || rounding == (x.negative ? Rounding::up : Rounding::down);
  return static_cast<uint16_t>(sign | (stays_finite ? infinity - 1 : infinity));
}

/// A double as a float that rounds further like the double itself: if it is not exact, to the
/// neighbour whose last bit is set ("to odd").
inline float to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const double error = x - nearest;
  auto bits = __builtin_bit_cast(uint32_t, nearest);
  if (error == 0.0 || error != error || bits & 1) return nearest;
  if (nearest == 0.0F) return x < 0.0 ? -1e-45F : 1e-45F;
  return __builtin_bit_cast(float, (error < 0.0) == (nearest < 0.0F) ? bits + 1 : bits - 1);
}

/// a + b as a double, rounded to odd.
inline double sum_to_odd(double a, double b) {
  const double sum = a + b, shift = sum - a, error = (a - (sum - shift)) + (b - shift);
  const auto bits = __builtin_bit_cast(uint64_t, sum);
  if (error == 0.0 || error != error || bits & 1) return sum;
  return __builtin_bit_cast(double, (error < 0.0) == (sum < 0.0) ? bits + 1 : bits - 1);
}

// Both formats convert as PyTorch does, a NaN's bits included. Without branches: a loop over them
// becomes vector instructions.
struct HalfFormat {
  static constexpr uint16_t infinity = 0x7C00, quiet_nan = 0x7FFF;

  static float to_float(uint16_t bits) {
    const uint32_t magnitude = bits & 0x7FFFU, sign = (bits & 0x8000U) << 16;
    constexpr uint32_t rebias = 112U << 23;
    // A subnormal number is a count of the last bits of 0.5.
    const float subnormal = __builtin_bit_cast(float, (126U << 23) | magnitude) - 0.5F;
    const uint32_t normal = (magnitude << 13) + rebias;
    const uint32_t special = magnitude << 13 | 0x7F800000U | (magnitude > 0x7C00U) << 22;
    const uint32_t result = magnitude < 0x0400U   ? __builtin_bit_cast(uint32_t, subnormal)
                            : magnitude < 0x7C00U ? normal
                                                  : special;
    return __builtin_bit_cast(float, sign | result);
  }

  static uint16_t from_float(float x) {
    const auto bits = __builtin_bit_cast(uint32_t, x);
    const uint32_t magnitude = bits & 0x7FFFFFFFU, sign = bits >> 16 & 0x8000U;
    // The last bit of 0.5 is the least subnormal half, so adding 0.5 rounds there.
    const float sum = __builtin_bit_cast(float, magnitude) + 0.5F;
    const uint32_t subnormal = __builtin_bit_cast(uint32_t, sum) - (126U << 23);
    const uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + (magnitude >> 13 & 1U)) >> 13;
    const uint32_t finite = magnitude < 113U << 23 ? subnormal : normal;
    const uint32_t bounded = magnitude >= 0x47800000U || finite > 0x7C00U ? 0x7C00U : finite;
    return static_cast<uint16_t>(sign | (magnitude > 0x7F800000U ? 0x7E00U : bounded));
  }

  static uint16_t round(const Exact& x, Rounding rounding) {
    return round_finite<11, -14, infinity>(x, rounding);
  }
  // A product of halves is exact as a float, and its sum with a half as a double is rounded to odd.
  static uint16_t from_sum(double a, double b) { return from_float(to_odd(sum_to_odd(a, b))); }
  static uint16_t from_double(double x) { return from_float(to_odd(x)); }
  /// The result of one operation on floats has enough bits to be rounded a second time.
  static uint16_t from_quotient(float a, float b) { return from_float(a / b); }
  static uint16_t from_product(float a, float b) { return from_float(a * b); }
};

struct BFloat16Format {
  static constexpr uint16_t infinity = 0x7F80, quiet_nan = 0x7FFF;

  static float to_float(uint16_t bits) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  }
  static uint16_t from_float(float x) {
    const auto bits = __builtin_bit_cast(uint32_t, x);
    const uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
    return static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FC0U : rounded);
  }
  static uint16_t round(const Exact& x, Rounding rounding) {
    return round_finite<8, -126, infinity>(x, rounding);
  }
  static uint16_t from_sum(double a, double b) { return from_float(to_odd(sum_to_odd(a, b))); }
  static uint16_t from_double(double x) { return from_float(to_odd(x)); }
  // A bfloat16 has a float's exponents, so a subnormal float would have too few bits.
  static uint16_t from_quotient(float a, float b) { return from_double(double{a} / b); }
  static uint16_t from_product(float a, float b) { return from_double(double{a} * b); }
};

/// A float or double in a rounding mode; NaN and infinity as to nearest.
template <class Format>
uint16_t round_directed(double x, Rounding rounding) {
  if (x - x != 0.0) return Format::from_double(x);
  return Format::round(exact(x), rounding);
}

}  // namespace cuda_on_cpu
