/// y = x³ and its derivative dx = 3x², of n elements.
template <class T>
void cube(T* y, T* dx, const T* x, long n) {
  for (long i = 0; i < n; ++i) {
    y[i] = x[i] * x[i] * x[i];
    dx[i] = 3 * x[i] * x[i];
  }
}
