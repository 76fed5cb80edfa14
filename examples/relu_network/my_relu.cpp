/// y = x clamped at 0, of n elements; NaN stays NaN.
template <class T>
void my_relu(T* y, const T* x, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] < 0 ? T(0) : x[i];
}

/// grad_x = grad, masked where x is negative.
template <class T>
void my_relu_backward(T* grad_x, const T* grad, const T* x, long n) {
  for (long i = 0; i < n; ++i) grad_x[i] = x[i] < 0 ? T(0) : grad[i];
}
