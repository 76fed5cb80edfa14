/// The loop around a formula: the body is compiled once, for whole contiguous vectors.
///
/// Operands that are not contiguous, and the remainder that fills no vector, go block by block
/// through a small buffer. Gathering lane by lane would need a second body, and would also stall
/// the processor: it cannot forward sixteen pending stores to one vector load.
#pragma once

#include "stream.h"

namespace pullback::formula {

template <int... Index>
struct Indices {};
#if defined(__clang__)
template <class Int, Int... Index>
using IndicesOf = Indices<Index...>;
template <int count>
using UpTo = __make_integer_seq<IndicesOf, int, count>;
#else
template <int count>
using UpTo = Indices<__integer_pack(count)...>;
#endif

constexpr int64_t block = 8 * lanes;  // elements of a buffer

/// Out of line: inlined, it would be compiled three times for each operand.
template <int size>
[[gnu::noinline]] void copy(char* to, int64_t to_stride, const char* from, int64_t from_stride,
                            int64_t count) {
  for (int64_t k = 0; k < count; ++k) {
    __builtin_memcpy(to, from, size);
    to += to_stride, from += from_stride;
    // Hides `to` from the compiler, so that it does not try to vectorise this loop.
    __asm__("" : "+r"(to));
  }
}

/// Where the next vector of an operand is. Separate from the buffer it may point into, so that the
/// compiler keeps it in a register.
template <class Type>
struct Cursor {
  char* at;
  int64_t step;
  PULLBACK_INLINE char* next() {
    char* const here = at;
    at += step;
    return here;
  }
};

template <class Type>
struct Operand {
  static constexpr int size = sizeof(Type);
  char* data;
  int64_t stride;
  alignas(register_bytes) char buffer[block * size];

  PULLBACK_INLINE Operand(char* data, int64_t stride) : data(data), stride(stride) {}
  PULLBACK_INLINE bool in_place(int64_t count) const { return stride == size && count >= lanes; }
};

/// An input with stride 0 fills one vector of its buffer, once, and is read from there.
template <class Type>
struct Input : Operand<Type> {
  using Operand<Type>::size, Operand<Type>::data, Operand<Type>::stride, Operand<Type>::buffer;

  PULLBACK_INLINE Input(char* data, int64_t stride) : Operand<Type>(data, stride) {
    if (stride == 0) copy<size>(buffer, size, data, 0, lanes);
  }
  PULLBACK_INLINE bool dense() const { return stride == 0 || stride == size; }
  PULLBACK_INLINE Cursor<Type> start(int64_t count) {
    if (stride == 0) return {buffer, 0};
    if (this->in_place(count)) return {data, lanes * size};
    copy<size>(buffer, size, data, stride, count);
    // The remaining lanes repeat the last element, so that they take no slow path of their own.
    const char* const last = data + (count - 1) * stride;
    copy<size>(buffer + count * size, size, last, 0, -count & (lanes - 1));
    return {buffer, lanes * size};
  }
  PULLBACK_INLINE void finish(int64_t count) { data += count * stride; }
};

template <class Type>
struct Output : Operand<Type> {
  using Operand<Type>::size, Operand<Type>::data, Operand<Type>::stride, Operand<Type>::buffer;
  using Operand<Type>::Operand;

  PULLBACK_INLINE bool dense() const { return stride == size; }
  PULLBACK_INLINE Cursor<Type> start(int64_t count) {
    return {this->in_place(count) ? data : buffer, lanes * size};
  }
  PULLBACK_INLINE void finish(int64_t count) {
    if (!this->in_place(count)) copy<size>(data, stride, buffer, size, count);
    data += count * stride;
  }
};

/// A body may declare `static constexpr int abreast = 2`: it also computes two vectors in turns.
template <class Body>
constexpr bool comes_in_pairs = [] {
  if constexpr (requires { Body::abreast; }) return Body::abreast == 2;
  return false;
}();

/// One value that the body writes, and where it goes afterwards. Not stored by a destructor: the
/// unwinding code for it would make the linker search the whole C++ library.
template <class Type>
struct Written {
  char* to;
  Value<Type> value;
  PULLBACK_INLINE void finish(bool streamed) const {
    if constexpr (streams<Type>) {
      if (streamed) return stream(to, value);
    }
    store<Type>(to, value);
  }
};

template <class... Type>
struct Outputs {};
template <class... Type>
struct Inputs {};
template <class Outputs, class Inputs>
struct Stored;

/// The dtypes in memory. All operands are parameters, since there is no <tuple> here.
template <class... O, class... I>
struct Stored<Outputs<O...>, Inputs<I...>> {
  template <class Body>
  PULLBACK_INLINE static void sweep(const Body& body, int64_t count, bool streamed,
                                    Cursor<O>... output, Cursor<I>... input) {
    int64_t k = 0;
    if constexpr (comes_in_pairs<Body>) {
#pragma GCC unroll 1
      for (; k + 2 * lanes <= count; k += 2 * lanes) {
        if constexpr (is_cheap<Body>) __asm__("" : "+r"(streamed));
        // All loads come before all stores.
        [&](auto... first) {
          [&](auto... second) {
            body(load<I>(input.at)..., load<I>(input.at + input.step)..., first.value...,
                 second.value...);
            ((input.at += 2 * input.step), ...);
            (first.finish(streamed), ...);
            (second.finish(streamed), ...);
          }(Written<O>{output.next(), {}}...);
        }(Written<O>{output.next(), {}}...);
      }
    }
#pragma GCC unroll 1
    for (; k < count; k += lanes) {
      // Keeps the compiler from splitting this into two loops, one for each kind of store.
      if constexpr (is_cheap<Body>) __asm__("" : "+r"(streamed));
      [&](auto... written) {
        body(load<I>(input.next())..., written.value...);
        (written.finish(streamed), ...);
      }(Written<O>{output.next(), {}}...);
    }
  }

  /// How many elements come before a boundary that suits streaming: -1 if none suits all outputs.
  PULLBACK_INLINE static int64_t before_boundary(int64_t n, const Output<O>&... output) {
    const int64_t bytes = n * int64_t((0 + ... + sizeof(O)) + (0 + ... + sizeof(I)));
    if (bytes < 1 << 20 || !overflows_cache(bytes)) return -1;
    uint64_t some = 0, all = register_bytes - 1;
    ((some |= uint64_t(output.data), all &= uint64_t(output.data)), ...);
    const int64_t beyond = some & (register_bytes - 1);
    return beyond == int64_t(all) ? (-beyond & (register_bytes - 1)) / int64_t(sizeof(Compute))
                                  : -1;
  }

  template <class Body>
  PULLBACK_INLINE static void loop(const Body& body, int64_t n, Output<O>&&... output,
                                   Input<I>&&... input) {
    const bool dense = (true && ... && output.dense()) && (true && ... && input.dense());
    int64_t first = -1;
    if constexpr (is_cheap<Body> && (streams<O> && ...)) {
      if (dense) first = before_boundary(n, output...);
    }
    const bool streamed = first >= 0;
    while (n > 0) {
      // Whole vectors, as many as there are or as fit the buffers; last, the elements that fill
      // none.
      const int64_t most = dense || n < block ? n : block, some = first > 0 ? first : n;
      const int64_t count = some < lanes ? some : most & -int64_t(lanes);
      sweep(body, count, streamed && count >= lanes, output.start(count)..., input.start(count)...);
      (output.finish(count), ...);
      (input.finish(count), ...);
      n -= count;
      first = 0;
    }
    if (streamed) finish_stream();
  }
};

template <class Body, class... O, int... o, class... I, int... i>
PULLBACK_INLINE void run_each(const Body& body, Stored<Outputs<O...>, Inputs<I...>>, Indices<o...>,
                              Indices<i...>, char** data, const int64_t* strides, int64_t n) {
  constexpr int outputs = sizeof...(O);
  Stored<Outputs<O...>, Inputs<I...>>::loop(body, n, Output<O>(data[o], strides[o])...,
                                            Input<I>(data[outputs + i], strides[outputs + i])...);
}

/// Calls the body for all n elements.
///
/// `data` has the outputs, then the inputs; `strides` are in bytes. An output may be an input,
/// with the same stride; they may not overlap in any other way.
template <class Body, class... O, class... I>
PULLBACK_INLINE void run(const Body& body, Stored<Outputs<O...>, Inputs<I...>> stored, char** data,
                         const int64_t* strides, int64_t n) {
  if (n <= 0) return;
  run_each(body, stored, UpTo<sizeof...(O)>{}, UpTo<sizeof...(I)>{}, data, strides, n);
}

}  // namespace pullback::formula
