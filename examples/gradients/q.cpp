#include <cmath>

/// y = xⁿ
template <class T>
void power(T* y, const T* x, long n, long count) {
  for (long i = 0; i < count; ++i) y[i] = std::pow(x[i], T(n));
}

/// q = 3u − v
template <class T>
void combine(T* q, const T* u, const T* v, long count) {
  for (long i = 0; i < count; ++i) q[i] = 3 * u[i] - v[i];
}
