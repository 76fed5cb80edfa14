/// thrust::complex: std::complex as a type of its own, as PyTorch's c10::complex expects.
#pragma once

#include <complex>

#include "policy.h"

namespace thrust {

template <class T>
struct complex : std::complex<T> {
  using std::complex<T>::complex;
  constexpr complex(const std::complex<T>& other) : std::complex<T>(other) {}
  template <class U>
  constexpr complex(const complex<U>& other)
      : std::complex<T>(static_cast<T>(other.real()), static_cast<T>(other.imag())) {}
  complex() = default;
  complex(const complex&) = default;
  complex& operator=(const complex&) = default;
  using std::complex<T>::operator=;
};

#define CUDA_ON_CPU_COMPLEX(op)                                                              \
  template <class T>                                                                         \
  complex<T> operator op(const complex<T>& a, const complex<T>& b) {                         \
    return static_cast<const std::complex<T>&>(a) op static_cast<const std::complex<T>&>(b); \
  }                                                                                          \
  template <class T>                                                                         \
  complex<T> operator op(const complex<T>& a, const T& b) {                                  \
    return static_cast<const std::complex<T>&>(a) op b;                                      \
  }                                                                                          \
  template <class T>                                                                         \
  complex<T> operator op(const T& a, const complex<T>& b) {                                  \
    return a op static_cast<const std::complex<T>&>(b);                                      \
  }
CUDA_ON_CPU_COMPLEX(+)
CUDA_ON_CPU_COMPLEX(-)
CUDA_ON_CPU_COMPLEX(*)
CUDA_ON_CPU_COMPLEX(/)
#undef CUDA_ON_CPU_COMPLEX
template <class T>
complex<T> operator-(const complex<T>& a) {
  return complex<T>(-a.real(), -a.imag());
}

#define CUDA_ON_CPU_COMPLEX(name)         \
  template <class T>                      \
  complex<T> name(const complex<T>& z) {  \
    return std::name(static_cast<const std::complex<T>&>(z)); \
  }
CUDA_ON_CPU_COMPLEX(conj)
CUDA_ON_CPU_COMPLEX(exp)
CUDA_ON_CPU_COMPLEX(log)
CUDA_ON_CPU_COMPLEX(log10)
CUDA_ON_CPU_COMPLEX(sqrt)
CUDA_ON_CPU_COMPLEX(sin)
CUDA_ON_CPU_COMPLEX(cos)
CUDA_ON_CPU_COMPLEX(tan)
CUDA_ON_CPU_COMPLEX(asin)
CUDA_ON_CPU_COMPLEX(acos)
CUDA_ON_CPU_COMPLEX(atan)
CUDA_ON_CPU_COMPLEX(sinh)
CUDA_ON_CPU_COMPLEX(cosh)
CUDA_ON_CPU_COMPLEX(tanh)
CUDA_ON_CPU_COMPLEX(asinh)
CUDA_ON_CPU_COMPLEX(acosh)
CUDA_ON_CPU_COMPLEX(atanh)
CUDA_ON_CPU_COMPLEX(proj)
#undef CUDA_ON_CPU_COMPLEX
#define CUDA_ON_CPU_COMPLEX(name)         \
  template <class T>                      \
  T name(const complex<T>& z) {           \
    return std::name(static_cast<const std::complex<T>&>(z)); \
  }
CUDA_ON_CPU_COMPLEX(abs)
CUDA_ON_CPU_COMPLEX(arg)
CUDA_ON_CPU_COMPLEX(norm)
#undef CUDA_ON_CPU_COMPLEX
template <class T>
complex<T> polar(const T& magnitude, const T& angle = T()) {
  return std::polar(magnitude, angle);
}
template <class T>
complex<T> pow(const complex<T>& a, const complex<T>& b) {
  return std::pow(static_cast<const std::complex<T>&>(a), static_cast<const std::complex<T>&>(b));
}
template <class T>
complex<T> pow(const complex<T>& a, const T& b) {
  return std::pow(static_cast<const std::complex<T>&>(a), b);
}
template <class T>
complex<T> pow(const T& a, const complex<T>& b) {
  return std::pow(a, static_cast<const std::complex<T>&>(b));
}

}  // namespace thrust
