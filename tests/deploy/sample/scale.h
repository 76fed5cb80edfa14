template <class T>
T scaled(T x, double k) {
  return static_cast<T>(x * k);
}
