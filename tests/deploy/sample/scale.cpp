#include "scale.h"

template <class T>
void scale(T* y, const T* x, double k, long n) {
  for (long i = 0; i < n; ++i) y[i] = scaled(x[i], k);
}
