/// The code that every generated entry point shares; kernels/glue.py writes the rest.
///
/// Included after the author's file: its headers decide which dtypes there are to try.
#pragma once

#include "kernel_abi.h"

#include <limits.h>
#include <stdio.h>

#include <exception>
#include <type_traits>

#ifdef CUDA_ON_CPU_EVERY_ORDER
#include "cuda_on_cpu/orders.h"
#endif

namespace pullback {

template <class T>
struct Dtype;

#define PULLBACK_DTYPE(type, code_, bits_, text_)                                             \
  template <>                                                                                 \
  struct Dtype<type> {                                                                        \
    static constexpr const char* text = text_;                                                \
    static constexpr bool is(DataType d) { return d.code == code_ && d.bits == bits_; }       \
  };

template <class... T>
struct Dtypes {};

PULLBACK_DTYPE(double, 2, 64, "float64")
PULLBACK_DTYPE(float, 2, 32, "float32")

#if defined(_GLIBCXX_COMPLEX) || defined(_LIBCPP_COMPLEX)
PULLBACK_DTYPE(std::complex<float>, 5, 64, "complex64")
PULLBACK_DTYPE(std::complex<double>, 5, 128, "complex128")
#define PULLBACK_COMPLEX , std::complex<float>, std::complex<double>
#else
#define PULLBACK_COMPLEX
#endif

#if defined(__CUDA_FP16_H__)
PULLBACK_DTYPE(__half, 2, 16, "float16")
#define PULLBACK_HALF , __half
#elif defined(__FLT16_MAX__) && !defined(__CUDACC__)
PULLBACK_DTYPE(_Float16, 2, 16, "float16")
#define PULLBACK_HALF , _Float16
#else
#define PULLBACK_HALF
#endif

#if defined(__CUDA_BF16_H__)
PULLBACK_DTYPE(__nv_bfloat16, 4, 16, "bfloat16")
#define PULLBACK_BFLOAT16 , __nv_bfloat16
#elif defined(__BFLT16_MAX__) && !defined(__CUDACC__)
PULLBACK_DTYPE(__bf16, 4, 16, "bfloat16")
#define PULLBACK_BFLOAT16 , __bf16
#else
#define PULLBACK_BFLOAT16
#endif

using AllDtypes = Dtypes<float, double PULLBACK_COMPLEX PULLBACK_HALF PULLBACK_BFLOAT16>;

/// Stands for a size while we ask which integers a kernel takes.
///
/// It converts only to 64-bit integers, so that a kernel which takes its sizes as `int` refuses it.
struct Wide {
  operator int64_t() const { return 0; }
  template <class U>
    requires(std::is_arithmetic_v<U> && sizeof(U) < sizeof(int64_t))
  operator U() const = delete;
};

#define PULLBACK_WIDE(op)                         \
  inline Wide operator op(Wide, Wide);            \
  template <class U>                              \
    requires std::is_arithmetic_v<U>              \
  Wide operator op(Wide, U);                      \
  template <class U>                              \
    requires std::is_arithmetic_v<U>              \
  Wide operator op(U, Wide);
PULLBACK_WIDE(+)
PULLBACK_WIDE(-)
PULLBACK_WIDE(*)
PULLBACK_WIDE(/)
PULLBACK_WIDE(%)

inline int64_t count(const Tensor& tensor) {
  int64_t count = 1;
  for (int32_t d = 0; d < tensor.ndim; ++d) count *= tensor.shape[d];
  return count;
}

// `I` is int64_t in a call of the kernel, and Wide where we only ask what it takes.
template <class I>
I numel_of(const Tensor& tensor) {
  if constexpr (std::is_same_v<I, Wide>) return {};
  else return count(tensor);
}

template <class I>
I size_of(const Tensor& tensor, int64_t d) {
  if constexpr (std::is_same_v<I, Wide>) return {};
  else return tensor.shape[d < 0 ? d + tensor.ndim : d];
}

template <class I>
I stride_of(const Tensor& tensor, int64_t d) {
  if constexpr (std::is_same_v<I, Wide>) return {};
  else return tensor.strides[d < 0 ? d + tensor.ndim : d];
}

#ifdef CUDA_ON_CPU_EVERY_ORDER
/// Calls the author's kernel in every order of a CUDA kernel's threads.
template <class Body, class T>
void run_in_every_order(const Call& call) {
  std::vector<cuda_on_cpu::Written> outputs;
  for (int32_t i = Body::pullback_inputs; i < Body::pullback_tensors; ++i) {
    const Tensor& tensor = call.tensors[i];
    outputs.push_back({tensor.data, tensor.data ? count(tensor) : 0, tensor.dtype.code,
                       tensor.dtype.bits, Body::pullback_name(i)});
  }
  cuda_on_cpu::in_every_order(std::move(outputs),
                              [&] { Body::template pullback_run<T, int64_t>(call); });
}
#endif

/// Runs the author's call. An exception becomes a status, since none may pass through C.
template <class Body, class T>
int run(const Call& call, char* message, uint64_t capacity) {
  if (!call.tensors) return ok;
  if constexpr (!Body::template pullback_takes<T, Wide>()) {
    for (int32_t i = 0; i < Body::pullback_tensors; ++i) {
      if (call.tensors[i].data && count(call.tensors[i]) > INT_MAX) {
        snprintf(message, capacity, "'%s' has %lld elements, and the kernel takes its sizes as int",
                 Body::pullback_name(i), static_cast<long long>(count(call.tensors[i])));
        return size_overflow;
      }
    }
  }
  try {
#ifdef CUDA_ON_CPU_EVERY_ORDER
    run_in_every_order<Body, T>(call);
#else
    // Not in a function of its own: g++ prints at most ten levels of template instantiations.
    Body::template pullback_run<T, int64_t>(call);
#endif
  } catch (const std::exception& error) {
    snprintf(message, capacity, "%s", error.what());
    return kernel_raised;
  } catch (...) {
    snprintf(message, capacity, "an exception that is no std::exception");
    return kernel_raised;
  }
#ifdef __CUDACC__
  if (const cudaError_t error = cudaGetLastError()) {
    snprintf(message, capacity, "CUDA: %s", cudaGetErrorString(error));
    return kernel_raised;
  }
#endif
  return ok;
}

/// Tries one dtype; returns whether it is the call's and the kernel takes it.
template <class Body, class T>
bool try_dtype(const Call& call, char* message, uint64_t capacity, int& status) {
  if constexpr (Body::template pullback_takes<T, int64_t>()) {
    if (!Dtype<T>::is(call.dtype)) return false;
    status = run<Body, T>(call, message, capacity);
    return true;
  } else {
    return false;
  }
}

template <class Body, class T>
uint64_t list_dtype(char* message, uint64_t used, uint64_t capacity) {
  if constexpr (Body::template pullback_takes<T, int64_t>()) {
    if (used < capacity)
      used += snprintf(message + used, capacity - used, "%s%s", used ? ", " : "", Dtype<T>::text);
  }
  return used;
}

/// Calls the kernel for the call's dtype, out of those that the author's function can take.
template <class Body, class... T>
int dispatch_among(Dtypes<T...>, const Call& call, char* message, uint64_t capacity) {
  if constexpr (!(Body::template pullback_takes<T, int64_t>() || ...)) {
    // No dtype fits: we compile a call all the same, so that the compiler says why.
    return run<Body, float>(call, message, capacity);
  } else {
    int status = dtype_refused;
    if ((try_dtype<Body, T>(call, message, capacity, status) || ...)) return status;
    uint64_t used = 0;
    ((used = list_dtype<Body, T>(message, used, capacity)), ...);
    return dtype_refused;
  }
}

/// A dtype that no function is written for: a function that takes it takes anything.
struct Anything;

/// Calls the kernel where the author names no dtypes.
///
/// A template over any dtype is used only for float32 and float64. Whether its body compiles for a
/// half or a complex number cannot be asked, only tried, and an error there would end the
/// compilation.
template <class Body>
int dispatch(const Call& call, char* message, uint64_t capacity) {
  if constexpr (Body::template pullback_takes<Anything, int64_t>()) {
    return dispatch_among<Body>(Dtypes<float, double>{}, call, message, capacity);
  } else {
    return dispatch_among<Body>(AllDtypes{}, call, message, capacity);
  }
}

/// Calls the kernel for one of the dtypes that the author names; each has to compile.
template <class Body, class... T>
int dispatch_named(const Call& call, char* message, uint64_t capacity) {
  int status = dtype_refused;
  if (((Dtype<T>::is(call.dtype) && (status = run<Body, T>(call, message, capacity), true)) || ...))
    return status;
  uint64_t used = 0;
  ((used += used < capacity ? snprintf(message + used, capacity - used, "%s%s", used ? ", " : "",
                                       Dtype<T>::text)
                            : 0),
   ...);
  return dtype_refused;
}

}  // namespace pullback
