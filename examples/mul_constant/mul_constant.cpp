/// y = constant · x, of n elements.
template <class T>
void mul_constant(T* y, const T* x, double constant, long n) {
  for (long i = 0; i < n; ++i) y[i] = T(constant) * x[i];
}
