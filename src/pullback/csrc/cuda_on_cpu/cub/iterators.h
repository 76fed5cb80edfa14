/// Iterators that compute the values they point at, instead of storing them.
#pragma once

#include "thread.h"

namespace cuda_on_cpu {

/// The arithmetic of a random-access iterator over a number `at`; `Derived` has `operator[]`.
template <class Derived, class Value, class Reference = Value, class Difference = ptrdiff_t>
class Computed {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = Value;
  using reference = Reference;
  using pointer = void;
  using difference_type = Difference;

  Reference operator*() const { return self()[0]; }
  Derived& operator+=(Difference n) { return at_ += n, self(); }
  Derived& operator-=(Difference n) { return at_ -= n, self(); }
  Derived& operator++() { return ++at_, self(); }
  Derived& operator--() { return --at_, self(); }
  Derived operator++(int) {
    Derived old = self();
    return ++at_, old;
  }
  Derived operator--(int) {
    Derived old = self();
    return --at_, old;
  }
  template <class N>
  Derived operator+(N n) const {
    Derived next = self();
    return next += static_cast<Difference>(n);
  }
  template <class N, class = std::enable_if_t<std::is_integral_v<N>>>
  Derived operator-(N n) const {
    Derived next = self();
    return next -= static_cast<Difference>(n);
  }
  friend Derived operator+(Difference n, const Derived& it) { return it + n; }
  friend Difference operator-(const Derived& a, const Derived& b) { return a.at_ - b.at_; }
  friend bool operator==(const Derived& a, const Derived& b) { return a.at_ == b.at_; }
  friend bool operator!=(const Derived& a, const Derived& b) { return a.at_ != b.at_; }
  friend bool operator<(const Derived& a, const Derived& b) { return a.at_ < b.at_; }
  friend bool operator>(const Derived& a, const Derived& b) { return a.at_ > b.at_; }
  friend bool operator<=(const Derived& a, const Derived& b) { return a.at_ <= b.at_; }
  friend bool operator>=(const Derived& a, const Derived& b) { return a.at_ >= b.at_; }

 protected:
  explicit Computed(Difference at = 0) : at_(at) {}
  Difference at_;

 private:
  Derived& self() { return static_cast<Derived&>(*this); }
  const Derived& self() const { return static_cast<const Derived&>(*this); }
};

}  // namespace cuda_on_cpu

CUB_NAMESPACE_BEGIN

template <class T, class Offset = ptrdiff_t>
class CountingInputIterator : public ::cuda_on_cpu::Computed<CountingInputIterator<T, Offset>, T> {
 public:
  explicit CountingInputIterator(const T& first = T()) : first_(first) {}
  template <class N>
  T operator[](N n) const {
    return static_cast<T>(first_ + static_cast<T>(this->at_ + n));
  }

 private:
  T first_;
};

template <class T, class Offset = ptrdiff_t>
class ConstantInputIterator : public ::cuda_on_cpu::Computed<ConstantInputIterator<T, Offset>, T> {
 public:
  explicit ConstantInputIterator(const T& value = T(), Offset = 0) : value_(value) {}
  template <class N>
  T operator[](N) const {
    return value_;
  }

 private:
  T value_;
};

template <class T, class Op, class Iterator, class Offset = ptrdiff_t>
class TransformInputIterator
    : public ::cuda_on_cpu::Computed<TransformInputIterator<T, Op, Iterator, Offset>, T> {
 public:
  TransformInputIterator(Iterator from, Op op) : from_(from), op_(op) {}
  template <class N>
  T operator[](N n) const {
    return op_(from_[this->at_ + n]);
  }

 private:
  Iterator from_;
  mutable Op op_;  // cub calls operators that are not const
};

/// A value with its position.
template <class Iterator, class Offset = ptrdiff_t,
          class T = typename std::iterator_traits<Iterator>::value_type>
class ArgIndexInputIterator
    : public ::cuda_on_cpu::Computed<ArgIndexInputIterator<Iterator, Offset, T>,
                                     KeyValuePair<Offset, T>> {
 public:
  explicit ArgIndexInputIterator(Iterator from) : from_(from) {}
  template <class N>
  KeyValuePair<Offset, T> operator[](N n) const {
    return {static_cast<Offset>(this->at_ + n), from_[this->at_ + n]};
  }
  void normalize() { from_ += this->at_, this->at_ = 0; }

 private:
  Iterator from_;
};

/// Reads through a given cache, which does not exist here.
template <CacheLoadModifier modifier, class T, class Offset = ptrdiff_t>
class CacheModifiedInputIterator
    : public ::cuda_on_cpu::Computed<CacheModifiedInputIterator<modifier, T, Offset>, T> {
 public:
  CacheModifiedInputIterator(const T* from) : from_(from) {}
  template <class N>
  T operator[](N n) const {
    return from_[this->at_ + n];
  }

 private:
  const T* from_;
};
template <CacheStoreModifier modifier, class T, class Offset = ptrdiff_t>
class CacheModifiedOutputIterator
    : public ::cuda_on_cpu::Computed<CacheModifiedOutputIterator<modifier, T, Offset>, T, T&> {
 public:
  CacheModifiedOutputIterator(T* to) : to_(to) {}
  template <class N>
  T& operator[](N n) const {
    return to_[this->at_ + n];
  }

 private:
  T* to_;
};

/// Discards what is written.
template <class Offset = ptrdiff_t>
class DiscardOutputIterator
    : public ::cuda_on_cpu::Computed<DiscardOutputIterator<Offset>, NullType> {
 public:
  explicit DiscardOutputIterator(Offset = 0) {}
  template <class N>
  NullType operator[](N) const {
    return {};
  }
};

CUB_NAMESPACE_END
