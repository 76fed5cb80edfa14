/// device_ptr, device_vector and host_vector.
#pragma once

#include <initializer_list>
#include <iterator>
#include <memory>
#include <vector>

#include "policy.h"

namespace thrust {

/// A pointer into device memory, which the host may read here.
template <class T>
class device_ptr {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = std::remove_cv_t<T>;
  using difference_type = ptrdiff_t;
  using pointer = device_ptr;
  using reference = std::add_lvalue_reference_t<T>;
  using element_type = T;

  device_ptr() = default;
  device_ptr(std::nullptr_t) {}
  template <class U, class = std::enable_if_t<std::is_convertible_v<U*, T*>>>
  explicit device_ptr(U* raw) : raw_(raw) {}
  template <class U, class = std::enable_if_t<std::is_convertible_v<U*, T*>>>
  device_ptr(const device_ptr<U>& other) : raw_(other.get()) {}

  T* get() const { return raw_; }
  reference operator*() const { return *raw_; }
  T* operator->() const { return raw_; }
  reference operator[](difference_type i) const { return raw_[i]; }
  explicit operator bool() const { return raw_ != nullptr; }
  device_ptr& operator+=(difference_type n) { return raw_ += n, *this; }
  device_ptr& operator-=(difference_type n) { return raw_ -= n, *this; }
  device_ptr& operator++() { return ++raw_, *this; }
  device_ptr& operator--() { return --raw_, *this; }
  device_ptr operator++(int) { return device_ptr(raw_++); }
  device_ptr operator--(int) { return device_ptr(raw_--); }
  friend device_ptr operator+(device_ptr p, difference_type n) { return p += n; }
  friend device_ptr operator+(difference_type n, device_ptr p) { return p += n; }
  friend device_ptr operator-(device_ptr p, difference_type n) { return p -= n; }
  friend difference_type operator-(device_ptr a, device_ptr b) { return a.raw_ - b.raw_; }
  friend bool operator==(device_ptr a, device_ptr b) { return a.raw_ == b.raw_; }
  friend bool operator!=(device_ptr a, device_ptr b) { return a.raw_ != b.raw_; }
  friend bool operator<(device_ptr a, device_ptr b) { return a.raw_ < b.raw_; }
  friend bool operator>(device_ptr a, device_ptr b) { return a.raw_ > b.raw_; }
  friend bool operator<=(device_ptr a, device_ptr b) { return a.raw_ <= b.raw_; }
  friend bool operator>=(device_ptr a, device_ptr b) { return a.raw_ >= b.raw_; }

 private:
  T* raw_ = nullptr;
};
template <class T>
using device_reference = T&;

template <class T>
device_ptr<T> device_pointer_cast(T* raw) {
  return device_ptr<T>(raw);
}
template <class T>
device_ptr<T> device_pointer_cast(const device_ptr<T>& pointer) {
  return pointer;
}
template <class T>
T* raw_pointer_cast(T* raw) {
  return raw;
}
template <class T>
T* raw_pointer_cast(const device_ptr<T>& pointer) {
  return pointer.get();
}
template <class T>
T& raw_reference_cast(T& reference) {
  return reference;
}

template <class T>
device_ptr<T> device_malloc(size_t count) {
  T* raw = nullptr;
  if (cudaMalloc(&raw, count * sizeof(T)) != cudaSuccess) throw std::bad_alloc();
  return device_ptr<T>(raw);
}
template <class T>
void device_free(device_ptr<T> pointer) {
  cudaFree(pointer.get());
}

/// A vector whose iterators are pointers: also one of bool, which std::vector packs into bits.
template <class T, bool on_device>
class Vector {
  struct Box {
    T value;
  };

 public:
  using value_type = T;
  using size_type = size_t;
  using difference_type = ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using iterator = T*;
  using const_iterator = const T*;
  using pointer = std::conditional_t<on_device, device_ptr<T>, T*>;
  using const_pointer = std::conditional_t<on_device, device_ptr<const T>, const T*>;

  Vector() = default;
  explicit Vector(size_t count, const T& value = T()) : boxes_(count, Box{value}) {}
  template <class It, class = typename std::iterator_traits<It>::iterator_category>
  Vector(It first, It last) {
    assign(first, last);
  }
  Vector(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
  template <bool other>
  Vector(const Vector<T, other>& values) {
    assign(values.begin(), values.end());
  }
  template <class U>
  Vector(const std::vector<U>& values) {
    assign(values.begin(), values.end());
  }
  template <bool other>
  Vector& operator=(const Vector<T, other>& values) {
    return assign(values.begin(), values.end()), *this;
  }
  template <class U>
  Vector& operator=(const std::vector<U>& values) {
    return assign(values.begin(), values.end()), *this;
  }

  template <class It>
  void assign(It first, It last) {
    std::vector<Box> made;
    for (; first != last; ++first) made.push_back(Box{static_cast<T>(*first)});
    boxes_.swap(made);
  }
  void assign(size_t count, const T& value) { boxes_.assign(count, Box{value}); }
  void resize(size_t count, const T& value = T()) { boxes_.resize(count, Box{value}); }
  void reserve(size_t count) { boxes_.reserve(count); }
  void shrink_to_fit() { boxes_.shrink_to_fit(); }
  void clear() { boxes_.clear(); }
  void push_back(const T& value) { boxes_.push_back(Box{value}); }
  void pop_back() { boxes_.pop_back(); }
  void swap(Vector& other) { boxes_.swap(other.boxes_); }
  iterator erase(iterator first, iterator last) {
    const auto at = boxes_.begin() + (first - begin());
    boxes_.erase(at, at + (last - first));
    return begin() + (at - boxes_.begin());
  }
  iterator erase(iterator at) { return erase(at, at + 1); }
  template <class It>
  void insert(iterator at, It first, It last) {
    const auto offset = at - begin();
    std::vector<Box> more;
    for (; first != last; ++first) more.push_back(Box{static_cast<T>(*first)});
    boxes_.insert(boxes_.begin() + offset, more.begin(), more.end());
  }

  size_t size() const { return boxes_.size(); }
  size_t capacity() const { return boxes_.capacity(); }
  bool empty() const { return boxes_.empty(); }
  iterator begin() { return raw(); }
  iterator end() { return raw() + size(); }
  const_iterator begin() const { return raw(); }
  const_iterator end() const { return raw() + size(); }
  const_iterator cbegin() const { return raw(); }
  const_iterator cend() const { return raw() + size(); }
  auto rbegin() { return std::reverse_iterator<iterator>(end()); }
  auto rend() { return std::reverse_iterator<iterator>(begin()); }
  T& operator[](size_t i) { return boxes_[i].value; }
  const T& operator[](size_t i) const { return boxes_[i].value; }
  T& front() { return boxes_.front().value; }
  T& back() { return boxes_.back().value; }
  const T& front() const { return boxes_.front().value; }
  const T& back() const { return boxes_.back().value; }
  pointer data() { return pointer(raw()); }
  const_pointer data() const { return const_pointer(raw()); }

 private:
  T* raw() { return reinterpret_cast<T*>(boxes_.data()); }
  const T* raw() const { return reinterpret_cast<const T*>(boxes_.data()); }

  std::vector<Box> boxes_;
};
template <class T, bool a, bool b>
bool operator==(const Vector<T, a>& x, const Vector<T, b>& y) {
  return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin());
}
template <class T, bool a, bool b>
bool operator!=(const Vector<T, a>& x, const Vector<T, b>& y) {
  return !(x == y);
}

template <class T>
using device_allocator = std::allocator<T>;
template <class T>
using device_malloc_allocator = std::allocator<T>;
template <class T, class = std::allocator<T>>
using device_vector = Vector<T, true>;
template <class T, class = std::allocator<T>>
using host_vector = Vector<T, false>;

}  // namespace thrust
