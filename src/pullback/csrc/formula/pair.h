/// Numbers of 64 bits beside floats: as many as there are lanes fill two registers.
///
/// A vector as wide as both is kept in memory by g++, which takes it apart in each operation: what
/// is read where numbers say took 7 ns an element with AVX2, and takes one so.
#pragma once

namespace pullback::formula {

/// The numbers of the first half of the lanes, and of the second.
struct Pair {
  using Register [[gnu::vector_size(register_bytes)]] = int64_t;
  Register low, high;
  static constexpr int many = register_bytes / 8;

  PULLBACK_INLINE int64_t operator[](int lane) const {
    return lane < many ? low[lane] : high[lane - many];
  }

#define PULLBACK_OPERATOR(sign)                                  \
  PULLBACK_INLINE friend Pair operator sign(Pair a, Pair b) {    \
    return {a.low sign b.low, a.high sign b.high};               \
  }                                                              \
  PULLBACK_INLINE friend Pair operator sign(Pair a, int64_t b) { \
    return a sign Pair{b - Register{}, b - Register{}};          \
  }                                                              \
  PULLBACK_INLINE friend Pair operator sign(int64_t a, Pair b) { \
    return Pair{a - Register{}, a - Register{}} sign b;          \
  }
  PULLBACK_OPERATOR(+)
  PULLBACK_OPERATOR(-)
  PULLBACK_OPERATOR(*)
  PULLBACK_OPERATOR(/)
  PULLBACK_OPERATOR(&)
  PULLBACK_OPERATOR(|)
  PULLBACK_OPERATOR(>>)
#undef PULLBACK_OPERATOR
  PULLBACK_INLINE friend Pair operator-(Pair a) { return {-a.low, -a.high}; }
  PULLBACK_INLINE friend Pair operator~(Pair a) { return {~a.low, ~a.high}; }
  PULLBACK_INLINE Pair& operator+=(Pair other) { return *this = *this + other; }
};

/// The numbers below one, as a pack that a function deduces.
template <int... number>
struct Order {};
template <int below, int... number>
struct Count : Count<below - 1, below - 1, number...> {};
template <int... number>
struct Count<0, number...> {
  using Numbers = Order<number...>;
};
constexpr Count<Pair::many>::Numbers half{};
constexpr Count<2 * Pair::many>::Numbers both{};

/// As many elements as a register of a `Pair` has.
template <class Element>
using Few [[gnu::vector_size(Pair::many * sizeof(Element))]] = Element;

/// The lanes from the first one on.
template <class Element, int first, int... lane>
PULLBACK_INLINE Few<Element> half_from(Lanes<Element> x, Order<lane...>) {
#if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(x, x, (first + lane)...);
#else
  return Few<Element>{x[first + lane]...};
#endif
}
/// Every lane of both halves.
template <class Element, int... lane>
PULLBACK_INLINE Lanes<Element> joined(Few<Element> low, Few<Element> high, Order<lane...>) {
#if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(low, high, lane...);
#else
  return Lanes<Element>{(lane < Pair::many ? low[lane] : high[lane - Pair::many])...};
#endif
}

/// Numbers of any width as such of 64 bits, and back: what they have more is lost.
template <class Element>
PULLBACK_INLINE Pair widened(Lanes<Element> x) {
  return {__builtin_convertvector((half_from<Element, 0>(x, half)), Pair::Register),
          __builtin_convertvector((half_from<Element, Pair::many>(x, half)), Pair::Register)};
}
template <class Element>
PULLBACK_INLINE Lanes<Element> narrowed(Pair x) {
  return joined<Element>(__builtin_convertvector(x.low, Few<Element>),
                         __builtin_convertvector(x.high, Few<Element>), both);
}

using Whole = Pair;

/// What a comparison of both registers gives, 0 or -1, in lanes of 32 bits.
template <class Found, int... lane>
PULLBACK_INLINE Truth truth_of(Found low, Found high, Order<lane...>) {
#if __has_builtin(__builtin_shufflevector)
  // Every second one of both, read as vectors of 32 bits.
  return __builtin_shufflevector(Truth(low), Truth(high), (2 * lane)...);
#else
  return joined<int32_t>(__builtin_convertvector(low, Few<int32_t>),
                         __builtin_convertvector(high, Few<int32_t>), both);
#endif
}

}  // namespace pullback::formula
