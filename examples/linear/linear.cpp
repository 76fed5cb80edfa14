/// y = x wᵀ + b: x is (n, i), w is (o, i), y is (n, o); b, of o, may be null.
template <class T>
void linear(T* y, const T* x, const T* w, const T* b, long n, long i, long o) {
  for (long r = 0; r < n; ++r)
    for (long c = 0; c < o; ++c) {
      T sum = b ? b[c] : T(0);
      for (long k = 0; k < i; ++k) sum += x[r * i + k] * w[c * i + k];
      y[r * o + c] = sum;
    }
}

/// grad_x = grad w, grad_w = gradᵀ x, grad_b = the sum of grad's rows; a null one is not needed.
template <class T>
void linear_backward(T* grad_x, T* grad_w, T* grad_b, const T* grad, const T* x, const T* w,
                     long n, long i, long o) {
  if (grad_x)
    for (long r = 0; r < n; ++r)
      for (long k = 0; k < i; ++k) {
        T sum = 0;
        for (long c = 0; c < o; ++c) sum += grad[r * o + c] * w[c * i + k];
        grad_x[r * i + k] = sum;
      }
  if (grad_w)
    for (long c = 0; c < o; ++c)
      for (long k = 0; k < i; ++k) {
        T sum = 0;
        for (long r = 0; r < n; ++r) sum += grad[r * o + c] * x[r * i + k];
        grad_w[c * i + k] = sum;
      }
  if (grad_b)
    for (long c = 0; c < o; ++c) {
      T sum = 0;
      for (long r = 0; r < n; ++r) sum += grad[r * o + c];
      grad_b[c] = sum;
    }
}
