// The Legendre polynomial of degree 3 and its derivative, for any dtype.
template <class T>
void legendre3(T* y, const T* x, long n) {
  for (long i = 0; i < n; ++i) y[i] = T(0.5) * (5 * x[i] * x[i] * x[i] - 3 * x[i]);
}

template <class T>
void legendre3_backward(T* grad_x, const T* grad, const T* x, long n) {
  for (long i = 0; i < n; ++i) grad_x[i] = grad[i] * T(1.5) * (5 * x[i] * x[i] - 1);
}
