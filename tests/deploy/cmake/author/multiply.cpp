#include "times.h"

template <class T>
void multiply(T* c, const T* a, const T* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) c[i] = times(a[i], b[i]) * SIGN;
}
