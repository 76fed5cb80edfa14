// P₃(x) = (5x³ - 3x) / 2
template <class T>
void legendre3(T* y, const T* x, long n) {
  for (long i = 0; i < n; ++i) y[i] = T(0.5) * (5 * x[i] * x[i] * x[i] - 3 * x[i]);
}

// P₃'(x) = 3 (5x² - 1) / 2
template <class T>
void legendre3_backward(T* grad_x, const T* grad, const T* x, long n) {
  for (long i = 0; i < n; ++i) grad_x[i] = grad[i] * T(1.5) * (5 * x[i] * x[i] - 1);
}
