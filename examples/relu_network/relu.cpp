template <class T>
void relu(T* y, const T* x, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] < 0 ? T(0) : x[i];
}

template <class T>
void relu_backward(T* grad_x, const T* grad, const T* x, long n) {
  for (long i = 0; i < n; ++i) grad_x[i] = x[i] < 0 ? T(0) : grad[i];
}
