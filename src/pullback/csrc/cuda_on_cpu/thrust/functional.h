/// Function objects, pairs and tuples.
#pragma once

#include <functional>
#include <tuple>
#include <utility>

#include "policy.h"

namespace thrust {

using std::bit_and;
using std::bit_or;
using std::bit_xor;
using std::divides;
using std::equal_to;
using std::greater;
using std::greater_equal;
using std::less;
using std::less_equal;
using std::logical_and;
using std::logical_not;
using std::logical_or;
using std::minus;
using std::modulus;
using std::multiplies;
using std::negate;
using std::not_equal_to;
using std::plus;

#define CUDA_ON_CPU_FUNCTION(name, parameters, result)     \
  template <class T = void>                                \
  struct name {                                            \
    constexpr T operator() parameters const { return result; } \
  };
CUDA_ON_CPU_FUNCTION(maximum, (const T& a, const T& b), a < b ? b : a)
CUDA_ON_CPU_FUNCTION(minimum, (const T& a, const T& b), b < a ? b : a)
CUDA_ON_CPU_FUNCTION(identity, (const T& a), a)
CUDA_ON_CPU_FUNCTION(square, (const T& a), a* a)
CUDA_ON_CPU_FUNCTION(project1st, (const T& a, const T&), a)
CUDA_ON_CPU_FUNCTION(project2nd, (const T&, const T& b), b)
#undef CUDA_ON_CPU_FUNCTION
#define CUDA_ON_CPU_FUNCTION(name, result)            \
  template <>                                         \
  struct name<void> {                                 \
    template <class A, class B>                       \
    constexpr auto operator()(const A& a, const B& b) const { return result; } \
  };
CUDA_ON_CPU_FUNCTION(maximum, a < b ? b : a)
CUDA_ON_CPU_FUNCTION(minimum, b < a ? b : a)
#undef CUDA_ON_CPU_FUNCTION
template <>
struct identity<void> {
  template <class T>
  constexpr T operator()(const T& a) const {
    return a;
  }
};
template <class A, class R>
struct unary_function {
  using argument_type = A;
  using result_type = R;
};
template <class A, class B, class R>
struct binary_function {
  using first_argument_type = A;
  using second_argument_type = B;
  using result_type = R;
};
template <class F>
auto not1(F f) {
  return std::not_fn(f);
}
template <class F>
auto not_fn(F f) {
  return std::not_fn(f);
}

using std::get;
using std::ignore;
using std::make_pair;
using std::make_tuple;
using std::pair;
using std::swap;
using std::tie;
using std::tuple;
using std::tuple_element;
using std::tuple_size;

// Placeholders for expressions such as `_1 < 5` and sums: a small part of thrust's language.
namespace placeholders {
template <int n>
struct Argument {
  template <class... A>
  constexpr auto operator()(A&&... arguments) const {
    return std::get<n - 1>(std::forward_as_tuple(arguments...));
  }
};
template <class F>
struct Expression {
  F f;
  template <class... A>
  constexpr auto operator()(A&&... arguments) const {
    return f(arguments...);
  }
};
template <class F>
Expression(F) -> Expression<F>;
template <class T>
struct IsExpression : std::false_type {};
template <int n>
struct IsExpression<Argument<n>> : std::true_type {};
template <class F>
struct IsExpression<Expression<F>> : std::true_type {};
template <class T, class... A>
constexpr auto valued(const T& term, A&... arguments) {
  if constexpr (IsExpression<T>::value) return term(arguments...);
  else return term;
}
#define CUDA_ON_CPU_TERM(op)                                                                   \
  template <class L, class R,                                                                  \
            class = std::enable_if_t<IsExpression<L>::value || IsExpression<R>::value>>        \
  constexpr auto operator op(const L& left, const R& right) {                                  \
    return Expression{[=](auto&&... a) { return valued(left, a...) op valued(right, a...); }}; \
  }
CUDA_ON_CPU_TERM(+)
CUDA_ON_CPU_TERM(-)
CUDA_ON_CPU_TERM(*)
CUDA_ON_CPU_TERM(/)
CUDA_ON_CPU_TERM(%)
CUDA_ON_CPU_TERM(<)
CUDA_ON_CPU_TERM(>)
CUDA_ON_CPU_TERM(<=)
CUDA_ON_CPU_TERM(>=)
CUDA_ON_CPU_TERM(==)
CUDA_ON_CPU_TERM(!=)
CUDA_ON_CPU_TERM(&&)
CUDA_ON_CPU_TERM(||)
CUDA_ON_CPU_TERM(&)
CUDA_ON_CPU_TERM(|)
#undef CUDA_ON_CPU_TERM
constexpr Argument<1> _1{};
constexpr Argument<2> _2{};
constexpr Argument<3> _3{};
}  // namespace placeholders

}  // namespace thrust
