/// The values a formula works on: vectors of one register, and the scalars beside them.
///
/// Written with the vector extensions of g++ and clang, so a formula is vectorised whatever the
/// optimiser thinks of its loop. No header of the C++ library is read: including <cmath> alone
/// takes as long as compiling a formula. Compile with -Wno-psabi: g++ remarks that passing wide
/// vectors by value depends on -march, but all of this is inlined.
///
/// Everything has a twin for double, int64_t and bool, for expressions of scalar arguments alone:
/// these are computed once a call, not once an element.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if !defined(PULLBACK_COMPUTE) || !defined(PULLBACK_ULP)
#error "define PULLBACK_COMPUTE (float or double) and PULLBACK_ULP (4 or 1) first"
#endif

// Where rows are short, narrower registers than the widest ones will do.
#if !defined(PULLBACK_WIDEST)
#define PULLBACK_WIDEST 64
#endif
#if defined(__AVX512F__) && PULLBACK_WIDEST >= 64
#define PULLBACK_REGISTER_BYTES 64
#elif defined(__AVX2__) && PULLBACK_WIDEST >= 32
#define PULLBACK_REGISTER_BYTES 32
#else
#define PULLBACK_REGISTER_BYTES 16
#endif

// The preprocessor chooses library functions by the dtype, so it has to know the dtype: 0 or 1.
#define PULLBACK_IS_float 0
#define PULLBACK_IS_double 1
#define PULLBACK_JOIN_(a, b) a##b
#define PULLBACK_JOIN(a, b) PULLBACK_JOIN_(a, b)
#define PULLBACK_DOUBLE PULLBACK_JOIN(PULLBACK_IS_, PULLBACK_COMPUTE)
#define PULLBACK_LANES (PULLBACK_REGISTER_BYTES / (PULLBACK_DOUBLE ? 8 : 4))

#define PULLBACK_INLINE [[gnu::always_inline]] inline

namespace pullback::formula {

using Compute = PULLBACK_COMPUTE;

constexpr int register_bytes = PULLBACK_REGISTER_BYTES;
constexpr int lanes = PULLBACK_LANES;

/// As many elements as there are lanes, in however many registers that takes.
template <class Element>
using Lanes [[gnu::vector_size(lanes * sizeof(Element))]] = Element;

template <class Compute>
struct TruthOf;
template <>
struct TruthOf<float> {
  using Lane = int32_t;
};
// As wide as int64_t but not the same type: Whole and Truth must be two to overload.
template <>
struct TruthOf<double> {
  using Lane = long long;
};

using Real = Lanes<Compute>;
using Truth = Lanes<TruthOf<Compute>::Lane>;  // 0 or -1

}  // namespace pullback::formula

#if !PULLBACK_DOUBLE
#include "pair.h"
#else
namespace pullback::formula {

using Whole = Lanes<int64_t>;
template <class Element>
PULLBACK_INLINE Whole widened(Lanes<Element> x) {
  return __builtin_convertvector(x, Whole);
}
template <class Element>
PULLBACK_INLINE Lanes<Element> narrowed(Whole x) {
  return __builtin_convertvector(x, Lanes<Element>);
}

}  // namespace pullback::formula
#endif

namespace pullback::formula {

static_assert(!__is_same(Whole, Truth));

/// Calls a function of registers with those of whole numbers.
template <class Function, class... Numbers>
PULLBACK_INLINE Whole by_register(Function function, Numbers... x) {
#if PULLBACK_DOUBLE
  return function(x...);
#else
  return {function(x.low...), function(x.high...)};
#endif
}

constexpr Compute infinity = Compute(__builtin_inf());
constexpr Compute not_a_number = Compute(__builtin_nan(""));

// One value in every lane. `v - 0` is v, also where v is -0.0; `v + 0` is not.
PULLBACK_INLINE Real splat(double value) { return Compute(value) - Real{}; }
PULLBACK_INLINE Whole splat(int64_t value) { return value - Whole{}; }
PULLBACK_INLINE Truth splat(bool value) { return -TruthOf<Compute>::Lane(value) - Truth{}; }

/// A constant of V, which is Real or double: one definition then serves both.
template <class V>
PULLBACK_INLINE V constant(double value) {
  if constexpr (__is_same(V, Real)) {
    return splat(value);
  } else {
    return value;
  }
}

PULLBACK_INLINE Real real(Real x) { return x; }
PULLBACK_INLINE Real real(Whole x) { return narrowed<Compute>(x); }
PULLBACK_INLINE Real real(Truth x) { return Real(x & Truth(splat(1.0))); }
PULLBACK_INLINE double real(double x) { return x; }
PULLBACK_INLINE double real(int64_t x) { return double(x); }
PULLBACK_INLINE double real(bool x) { return x; }

PULLBACK_INLINE Whole whole(Whole x) { return x; }
PULLBACK_INLINE Whole whole(Truth x) { return -widened<TruthOf<Compute>::Lane>(x); }
PULLBACK_INLINE int64_t whole(int64_t x) { return x; }
PULLBACK_INLINE int64_t whole(bool x) { return x; }

template <class Compare>
PULLBACK_INLINE Truth compared(Whole a, Whole b, Compare compare) {
#if PULLBACK_DOUBLE
  return Truth(compare(a, b));
#else
  return truth_of(compare(a.low, b.low), compare(a.high, b.high), both);
#endif
}

#define PULLBACK_COMPARISON(name, sign)                                  \
  PULLBACK_INLINE Truth name(Real a, Real b) { return Truth(a sign b); } \
  PULLBACK_INLINE Truth name(Whole a, Whole b) {                         \
    return compared(a, b, [](auto x, auto y) { return x sign y; });       \
  }                                                                      \
  PULLBACK_INLINE bool name(double a, double b) { return a sign b; }     \
  PULLBACK_INLINE bool name(int64_t a, int64_t b) { return a sign b; }

PULLBACK_COMPARISON(lt, <)
PULLBACK_COMPARISON(le, <=)
PULLBACK_COMPARISON(gt, >)
PULLBACK_COMPARISON(ge, >=)
PULLBACK_COMPARISON(eq, ==)
PULLBACK_COMPARISON(ne, !=)
#undef PULLBACK_COMPARISON

PULLBACK_INLINE Truth truth(Truth x) { return x; }
PULLBACK_INLINE Truth truth(Real x) { return ne(x, Real{}); }
PULLBACK_INLINE Truth truth(Whole x) { return ne(x, Whole{}); }
PULLBACK_INLINE bool truth(bool x) { return x; }
PULLBACK_INLINE bool truth(double x) { return x != 0; }
PULLBACK_INLINE bool truth(int64_t x) { return x != 0; }

PULLBACK_INLINE Truth logical_and(Truth a, Truth b) { return a & b; }
PULLBACK_INLINE Truth logical_or(Truth a, Truth b) { return a | b; }
PULLBACK_INLINE Truth logical_xor(Truth a, Truth b) { return a ^ b; }
PULLBACK_INLINE Truth logical_not(Truth a) { return ~a; }
PULLBACK_INLINE bool logical_and(bool a, bool b) { return a && b; }
PULLBACK_INLINE bool logical_or(bool a, bool b) { return a || b; }
PULLBACK_INLINE bool logical_xor(bool a, bool b) { return a != b; }
PULLBACK_INLINE bool logical_not(bool a) { return !a; }

// Chooses bits: a NaN in the branch not taken stays there.
PULLBACK_INLINE Real where(Truth condition, Real a, Real b) { return condition ? a : b; }
PULLBACK_INLINE Truth where(Truth condition, Truth a, Truth b) {
  return (condition & a) | (~condition & b);
}
PULLBACK_INLINE Whole where(Truth condition, Whole a, Whole b) {
  const Whole wide = widened<TruthOf<Compute>::Lane>(condition);
  return (wide & a) | (~wide & b);
}
template <class V>
PULLBACK_INLINE V where(bool condition, V a, V b) {
  return condition ? a : b;
}

constexpr TruthOf<Compute>::Lane sign_bit = __is_same(Compute, float) ? INT32_MIN : INT64_MIN;

PULLBACK_INLINE Real abs(Real x) { return Real(Truth(x) & ~sign_bit); }
PULLBACK_INLINE double abs(double x) { return __builtin_fabs(x); }

// A NaN passes. g++ compiles the comparison to two instructions instead of one.
#if PULLBACK_REGISTER_BYTES == 64 && !defined(__clang__) && PULLBACK_DOUBLE
PULLBACK_INLINE Real at_least(Real x, Real low) {
  return __builtin_ia32_maxpd512_mask(low, x, x, -1, 4);
}
PULLBACK_INLINE Real at_most(Real x, Real high) {
  return __builtin_ia32_minpd512_mask(high, x, x, -1, 4);
}
#elif PULLBACK_REGISTER_BYTES == 64 && !defined(__clang__)
PULLBACK_INLINE Real at_least(Real x, Real low) {
  return __builtin_ia32_maxps512_mask(low, x, x, -1, 4);
}
PULLBACK_INLINE Real at_most(Real x, Real high) {
  return __builtin_ia32_minps512_mask(high, x, x, -1, 4);
}
#elif PULLBACK_REGISTER_BYTES == 32 && !defined(__clang__) && PULLBACK_DOUBLE
PULLBACK_INLINE Real at_least(Real x, Real low) { return __builtin_ia32_maxpd256(low, x); }
PULLBACK_INLINE Real at_most(Real x, Real high) { return __builtin_ia32_minpd256(high, x); }
#elif PULLBACK_REGISTER_BYTES == 32 && !defined(__clang__)
PULLBACK_INLINE Real at_least(Real x, Real low) { return __builtin_ia32_maxps256(low, x); }
PULLBACK_INLINE Real at_most(Real x, Real high) { return __builtin_ia32_minps256(high, x); }
#else
PULLBACK_INLINE Real at_least(Real x, Real low) { return x < low ? low : x; }
PULLBACK_INLINE Real at_most(Real x, Real high) { return x > high ? high : x; }
#endif
PULLBACK_INLINE double at_least(double x, double low) { return x < low ? low : x; }
PULLBACK_INLINE double at_most(double x, double high) { return x > high ? high : x; }

PULLBACK_INLINE bool any(Truth x) {
#if PULLBACK_REGISTER_BYTES == 64 && !defined(__clang__) && PULLBACK_DOUBLE
  return __builtin_ia32_ptestmq512(x, x, -1);
#elif PULLBACK_REGISTER_BYTES == 64 && !defined(__clang__)
  return __builtin_ia32_ptestmd512(x, x, -1);
#elif PULLBACK_REGISTER_BYTES == 32 && !defined(__clang__) && PULLBACK_DOUBLE
  return __builtin_ia32_movmskpd256(Real(x));
#elif PULLBACK_REGISTER_BYTES == 32 && !defined(__clang__)
  return __builtin_ia32_movmskps256(Real(x));
#else
  TruthOf<Compute>::Lane found = 0;
  for (int k = 0; k < lanes; ++k) found |= x[k];
  return found != 0;
#endif
}
PULLBACK_INLINE bool any(bool x) { return x; }

/// Calls a function of doubles once a lane, for functions without a vector form.
template <class Function, class... Arguments>
PULLBACK_INLINE Real each_lane(Function function, Arguments... x) {
  Real y;
#pragma GCC unroll 1
  for (int k = 0; k < lanes; ++k) y[k] = Compute(function(double(x[k])...));
  return y;
}

}  // namespace pullback::formula
