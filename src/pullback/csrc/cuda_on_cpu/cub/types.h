/// cub's small types and functions: pairs, operators, the order of keys by their bits.
#pragma once

#include <limits>

#include "config.h"

CUB_NAMESPACE_BEGIN

struct NullType {
  template <class T>
  NullType& operator=(const T&) {
    return *this;
  }
  bool operator==(const NullType&) const { return true; }
  bool operator!=(const NullType&) const { return false; }
};
template <int value>
struct Int2Type {
  enum { VALUE = value };
};
template <bool condition, class T, class F>
struct If {
  typedef std::conditional_t<condition, T, F> Type;
};
template <class A, class B>
struct Equals {
  enum { VALUE = std::is_same<A, B>::value, NEGATE = !VALUE };
};
template <int n, int current = n, int count = 0>
struct Log2 {
  enum { VALUE = Log2<n, (current >> 1), count + 1>::VALUE };
};
template <int n, int count>
struct Log2<n, 0, count> {
  enum { VALUE = (1 << (count - 1) < n) ? count : count - 1 };
};
template <int n>
struct PowerOfTwo {
  enum { VALUE = (n & (n - 1)) == 0 };
};

template <class Key, class Value>
struct KeyValuePair {
  typedef Key Key_;
  typedef Value Value_;
  Key key;
  Value value;
  KeyValuePair() = default;
  KeyValuePair(const Key& key, const Value& value) : key(key), value(value) {}
  bool operator==(const KeyValuePair& b) const { return key == b.key && value == b.value; }
  bool operator!=(const KeyValuePair& b) const { return !(*this == b); }
};

struct Sum {
  template <class A, class B>
  auto operator()(A&& a, B&& b) const {
    return a + b;
  }
};
struct Difference {
  template <class A, class B>
  auto operator()(A&& a, B&& b) const {
    return a - b;
  }
};
struct Division {
  template <class A, class B>
  auto operator()(A&& a, B&& b) const {
    return a / b;
  }
};
struct Max {
  template <class A, class B>
  std::common_type_t<A, B> operator()(A&& a, B&& b) const {
    return CUB_MAX(a, b);
  }
};
struct Min {
  template <class A, class B>
  std::common_type_t<A, B> operator()(A&& a, B&& b) const {
    return CUB_MIN(a, b);
  }
};
/// Of equal values takes the one that comes first.
struct ArgMax {
  template <class T, class Offset>
  KeyValuePair<Offset, T> operator()(const KeyValuePair<Offset, T>& a,
                                     const KeyValuePair<Offset, T>& b) const {
    return b.value > a.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};
struct ArgMin {
  template <class T, class Offset>
  KeyValuePair<Offset, T> operator()(const KeyValuePair<Offset, T>& a,
                                     const KeyValuePair<Offset, T>& b) const {
    return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};
struct Equality {
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return a == b;
  }
};
struct Inequality {
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return a != b;
  }
};
template <class Op>
struct InequalityWrapper {
  Op op;
  explicit InequalityWrapper(Op op) : op(op) {}
  template <class A, class B>
  bool operator()(A&& a, B&& b) {
    return !op(a, b);
  }
};
template <class To>
struct CastOp {
  template <class T>
  To operator()(T&& a) const {
    return static_cast<To>(a);
  }
};

template <class T>
struct DoubleBuffer {
  T* d_buffers[2];
  int selector = 0;
  DoubleBuffer() : d_buffers{nullptr, nullptr} {}
  DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
  T* Current() { return d_buffers[selector]; }
  T* Alternate() { return d_buffers[selector ^ 1]; }
};

enum Category { NOT_A_NUMBER, SIGNED_INTEGER, UNSIGNED_INTEGER, FLOATING_POINT };

/// The bits of a key as a number that sorts as the key does.
template <class T>
struct Traits {
  static constexpr bool is_float = !std::numeric_limits<T>::is_integer;
  static constexpr bool is_signed = is_float || std::is_signed_v<T>;
  static constexpr bool PRIMITIVE = std::is_arithmetic_v<T> || sizeof(T) == 2;
  static constexpr Category CATEGORY = is_float    ? FLOATING_POINT
                                       : is_signed ? SIGNED_INTEGER
                                                   : UNSIGNED_INTEGER;
  using UnsignedBits = std::conditional_t<
      sizeof(T) == 1, unsigned char,
      std::conditional_t<sizeof(T) == 2, unsigned short,
                         std::conditional_t<sizeof(T) == 4, unsigned, unsigned long long>>>;

  static UnsignedBits TwiddleIn(UnsignedBits bits) {
    constexpr UnsignedBits high = static_cast<UnsignedBits>(UnsignedBits{1} << (8 * sizeof(T) - 1));
    // -0 sorts as +0 does.
    if (is_float && bits == high) bits = 0;
    if (is_float) return static_cast<UnsignedBits>(bits & high ? ~bits : bits ^ high);
    return static_cast<UnsignedBits>(is_signed ? bits ^ high : bits);
  }
  static UnsignedBits sortable(const T& key) {
    UnsignedBits bits;
    memcpy(&bits, &key, sizeof bits);
    return TwiddleIn(bits);
  }
};
template <class T>
using NumericTraits = Traits<T>;

/// Uninitialised memory for a T, which may be shared or in a union.
template <class T>
struct Uninitialized {
  alignas(T) unsigned char bytes[sizeof(T)];
  T& Alias() { return reinterpret_cast<T&>(*this); }
};

CUB_NAMESPACE_END

namespace cuda_on_cpu {

/// The temporary storage of cub's block-wide functions.
template <class T, int count>
struct Storage {
  alignas(T) unsigned char bytes[sizeof(T) * (count > 0 ? count : 1)];
  T& operator[](int i) { return reinterpret_cast<T*>(bytes)[i]; }
};

}  // namespace cuda_on_cpu
