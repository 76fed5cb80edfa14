/// Iterators that compute what they point at, or point through others.
#pragma once

#include "../cub/iterators.h"
#include "functional.h"
#include "memory.h"

namespace thrust {

using std::advance;
using std::distance;
using std::iterator_traits;
using std::make_reverse_iterator;
using std::next;
using std::prev;
using std::reverse_iterator;
template <class It>
using iterator_value_t = typename std::iterator_traits<It>::value_type;
template <class It>
struct iterator_value {
  using type = iterator_value_t<It>;
};
template <class It>
struct iterator_difference {
  using type = typename std::iterator_traits<It>::difference_type;
};

/// Counts integers: the distance of two iterators is that of their numbers, wherever they began.
template <class T, class = void, class = void, class = void>
class counting_iterator : public ::cuda_on_cpu::Computed<counting_iterator<T>, T> {
  using Base = ::cuda_on_cpu::Computed<counting_iterator<T>, T>;

 public:
  explicit counting_iterator(T first = T()) : Base(static_cast<ptrdiff_t>(first)) {}
  T operator[](ptrdiff_t n) const { return static_cast<T>(this->at_ + n); }
};
template <class T>
counting_iterator<T> make_counting_iterator(T first) {
  return counting_iterator<T>(first);
}

template <class T, class = void, class = void>
class constant_iterator : public ::cuda_on_cpu::Computed<constant_iterator<T>, T> {
 public:
  explicit constant_iterator(T value = T(), ptrdiff_t at = 0)
      : ::cuda_on_cpu::Computed<constant_iterator<T>, T>(at), value_(value) {}
  T operator[](ptrdiff_t) const { return value_; }

 private:
  T value_;
};
template <class T>
constant_iterator<T> make_constant_iterator(T value) {
  return constant_iterator<T>(value);
}

/// Holds an iterator by value, and moves with it.
template <class Derived, class Base, class Value, class Reference = Value>
class Adapted {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = std::decay_t<Value>;
  using reference = Reference;
  using pointer = void;
  using difference_type = ptrdiff_t;

  explicit Adapted(Base base) : base_(base) {}
  const Base& base() const { return base_; }
  decltype(auto) operator[](difference_type n) const { return *(self() + n); }
  Derived& operator+=(difference_type n) { return base_ += n, self(); }
  Derived& operator-=(difference_type n) { return base_ -= n, self(); }
  Derived& operator++() { return ++base_, self(); }
  Derived& operator--() { return --base_, self(); }
  Derived operator++(int) {
    Derived old = self();
    return ++base_, old;
  }
  Derived operator--(int) {
    Derived old = self();
    return --base_, old;
  }
  friend Derived operator+(Derived it, difference_type n) { return it += n; }
  friend Derived operator+(difference_type n, Derived it) { return it += n; }
  friend Derived operator-(Derived it, difference_type n) { return it -= n; }
  friend difference_type operator-(const Derived& a, const Derived& b) { return a.base_ - b.base_; }
  friend bool operator==(const Derived& a, const Derived& b) { return a.base_ == b.base_; }
  friend bool operator!=(const Derived& a, const Derived& b) { return !(a.base_ == b.base_); }
  friend bool operator<(const Derived& a, const Derived& b) { return a.base_ < b.base_; }

 protected:
  Base base_;

 private:
  Derived& self() { return static_cast<Derived&>(*this); }
  const Derived& self() const { return static_cast<const Derived&>(*this); }
};

template <class F, class Base>
using ResultOf = decltype(std::declval<F&>()(*std::declval<const Base&>()));

template <class F, class Base, class = void, class = void>
class transform_iterator
    : public Adapted<transform_iterator<F, Base>, Base, ResultOf<F, Base>, ResultOf<F, Base>> {
 public:
  transform_iterator(Base base, F f)
      : Adapted<transform_iterator<F, Base>, Base, ResultOf<F, Base>, ResultOf<F, Base>>(base),
        f_(f) {}
  ResultOf<F, Base> operator*() const { return (*f_)(*this->base_); }

 private:
  /// Assignable, as iterators are, even if it holds a lambda, which is not.
  struct Function {
    F f;
    Function(F f) : f(f) {}
    Function(const Function&) = default;
    Function& operator=(const Function& other) {
      if (this != &other) this->~Function(), new (this) Function(other);
      return *this;
    }
    F& operator*() const { return const_cast<F&>(f); }
  };
  Function f_;
};
template <class F, class Base>
transform_iterator<F, Base> make_transform_iterator(Base base, F f) {
  return {base, f};
}

template <class Values, class Indices>
class permutation_iterator
    : public Adapted<permutation_iterator<Values, Indices>, Indices, iterator_value_t<Values>,
                     typename std::iterator_traits<Values>::reference> {
 public:
  permutation_iterator(Values values, Indices indices)
      : Adapted<permutation_iterator<Values, Indices>, Indices, iterator_value_t<Values>,
                typename std::iterator_traits<Values>::reference>(indices),
        values_(values) {}
  decltype(auto) operator*() const { return values_[*this->base_]; }

 private:
  Values values_;
};
template <class Values, class Indices>
permutation_iterator<Values, Indices> make_permutation_iterator(Values values, Indices indices) {
  return {values, indices};
}

template <class Tuple>
class zip_iterator;
/// Several iterators as one over tuples of references.
template <class... Its>
class zip_iterator<std::tuple<Its...>> {
  using All = std::index_sequence_for<Its...>;

 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = std::tuple<iterator_value_t<Its>...>;
  using reference = std::tuple<typename std::iterator_traits<Its>::reference...>;
  using pointer = void;
  using difference_type = ptrdiff_t;

  zip_iterator() = default;
  explicit zip_iterator(std::tuple<Its...> its) : its_(its) {}
  const std::tuple<Its...>& get_iterator_tuple() const { return its_; }
  reference operator*() const { return at(0, All()); }
  reference operator[](difference_type n) const { return at(n, All()); }
  zip_iterator& operator+=(difference_type n) {
    std::apply([n](auto&... each) { ((each += n), ...); }, its_);
    return *this;
  }
  zip_iterator& operator-=(difference_type n) { return *this += -n; }
  zip_iterator& operator++() { return *this += 1; }
  zip_iterator& operator--() { return *this += -1; }
  zip_iterator operator++(int) {
    zip_iterator old = *this;
    return ++*this, old;
  }
  friend zip_iterator operator+(zip_iterator it, difference_type n) { return it += n; }
  friend zip_iterator operator-(zip_iterator it, difference_type n) { return it += -n; }
  friend difference_type operator-(const zip_iterator& a, const zip_iterator& b) {
    return std::get<0>(a.its_) - std::get<0>(b.its_);
  }
  friend bool operator==(const zip_iterator& a, const zip_iterator& b) { return a - b == 0; }
  friend bool operator!=(const zip_iterator& a, const zip_iterator& b) { return a - b != 0; }
  friend bool operator<(const zip_iterator& a, const zip_iterator& b) { return a - b < 0; }

 private:
  template <size_t... is>
  reference at(difference_type n, std::index_sequence<is...>) const {
    return reference(std::get<is>(its_)[n]...);
  }
  std::tuple<Its...> its_;
};
template <class... Its>
auto make_zip_iterator(std::tuple<Its...> its) {
  return zip_iterator<std::tuple<Its...>>(its);
}
template <class It, class... Its, class = std::enable_if_t<(sizeof...(Its) > 0)>>
auto make_zip_iterator(It first, Its... rest) {
  return make_zip_iterator(std::make_tuple(first, rest...));
}

/// Discards what is written.
class discard_iterator {
  struct Sink {
    template <class T>
    const Sink& operator=(const T&) const {
      return *this;
    }
  };

 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = Sink;
  using reference = Sink;
  using pointer = void;
  using difference_type = ptrdiff_t;
  explicit discard_iterator(ptrdiff_t at = 0) : at_(at) {}
  Sink operator*() const { return {}; }
  Sink operator[](ptrdiff_t) const { return {}; }
  discard_iterator& operator++() { return ++at_, *this; }
  discard_iterator operator++(int) { return discard_iterator(at_++); }
  discard_iterator& operator+=(ptrdiff_t n) { return at_ += n, *this; }
  friend discard_iterator operator+(discard_iterator it, ptrdiff_t n) { return it += n; }
  friend ptrdiff_t operator-(discard_iterator a, discard_iterator b) { return a.at_ - b.at_; }
  friend bool operator==(discard_iterator a, discard_iterator b) { return a.at_ == b.at_; }
  friend bool operator!=(discard_iterator a, discard_iterator b) { return a.at_ != b.at_; }

 private:
  ptrdiff_t at_;
};
inline discard_iterator make_discard_iterator() { return discard_iterator(); }

template <class F>
struct ZipFunction {
  F f;
  template <class Tuple>
  decltype(auto) operator()(Tuple&& tuple) const {
    return std::apply(f, tuple);
  }
};
template <class F>
ZipFunction<F> make_zip_function(F f) {
  return {f};
}

}  // namespace thrust
