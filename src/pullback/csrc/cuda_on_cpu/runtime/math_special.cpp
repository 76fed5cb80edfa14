#include "../math/special.h"

#include <cmath>
#include <limits>

namespace cuda_on_cpu::special {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double pi = 3.14159265358979323846, sqrt_pi = 1.77245385090551602730;

/// exp(-x^2), or exp(x^2), corrected for the rounding error of the square, which exp amplifies.
double exp_of_square(double x, double sign) {
  const double square = x * x, lost = std::fma(x, x, -square);
  return std::exp(sign * square) * (1.0 + sign * lost);
}

/// Where erfc underflows: the asymptotic series, to far below its smallest term.
double erfcx_series(double x) {
  const double q = 0.5 / (x * x);
  double term = 1.0, sum = 1.0;
  for (int k = 1; k < 12; ++k) sum += term *= -(2 * k - 1) * q;
  return sum / (x * sqrt_pi);
}

/// The inverse of erfc for 0 < y <= 0.5: third-order steps from a start with two digits.
double erfcinv_tail(double y) {
  const double t = std::sqrt(-2.0 * std::log(0.5 * y));
  // The rational start is that of Abramowitz and Stegun, 26.2.23.
  double x = (t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                      (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)))) *
             0.70710678118654752440;
  for (int step = 0; step < 3; ++step) {
    // (erfc(x) - y) / erfc'(x), with both scaled by exp(x^2): nothing underflows for a tiny y, nor
    // may the scale overflow beside one that is subnormal.
    constexpr double apart = 0x1p100, log_apart = 69.314718055994530942;
    const double scaled =
        x < 26.0 ? y * exp_of_square(x, 1.0) : y * apart * std::exp(x * x - log_apart);
    const double u = -0.5 * sqrt_pi * (erfcx(x) - scaled);
    x -= u / (1.0 + x * u);
  }
  return x;
}

/// The modified Bessel function by its power series: all terms have one sign, so none cancel.
double bessel(double x, int order) {
  const double a = std::fabs(x), quarter = 0.25 * a * a;
  if (a > 714.0) return std::isnan(x) ? x : order && x < 0 ? -infinity : infinity;
  double term = order ? 0.5 * a : 1.0, sum = term;
  for (int k = 1; term > sum * 1e-18; ++k) {
    sum += term *= quarter / (static_cast<double>(k) * (k + order));
  }
  return order && x < 0 ? -sum : sum;
}

}  // namespace

double sinpi(double x) {
  double r = std::remainder(x, 2.0);  // exact, as is everything before the sine
  if (std::fabs(r) > 0.5) r = std::copysign(1.0, r) - r;
  return r == 0.0 ? std::copysign(0.0, x) : std::sin(pi * r);
}

double cospi(double x) {
  const double r = std::fabs(std::remainder(x, 2.0));
  if (r <= 0.25) return std::cos(pi * r);
  return r < 0.75 ? std::sin(pi * (0.5 - r)) : -std::cos(pi * (1.0 - r));
}

double erfcx(double x) {
  if (x < -26.7) return infinity;
  if (x > 25.0) return erfcx_series(x);
  return exp_of_square(x, 1.0) * std::erfc(x);
}

double erfcinv(double y) {
  if (!(y >= 0.0 && y <= 2.0)) return nan;
  if (y == 0.0 || y == 2.0) return y == 0.0 ? infinity : -infinity;
  if (y > 0.5 && y < 1.5) return erfinv(1.0 - y);
  return y > 1.0 ? -erfcinv_tail(2.0 - y) : erfcinv_tail(y);
}

double erfinv(double y) {
  if (!(std::fabs(y) <= 1.0)) return nan;
  if (std::fabs(y) == 1.0) return std::copysign(infinity, y);
  if (std::fabs(y) >= 0.5) return std::copysign(erfcinv_tail(1.0 - std::fabs(y)), y);
  double x = 0.5 * sqrt_pi * y;
  if (std::fabs(y) < 1e-9) return x;  // the next term is beyond a double, and a step loses digits
  for (int step = 0; step < 3; ++step) {
    const double u = 0.5 * sqrt_pi * (std::erf(x) - y) * exp_of_square(x, 1.0);
    x -= u / (1.0 + x * u);
  }
  return x;
}

double normcdf(double x) {
  // -x / sqrt(2) in two parts: in the tail, the second changes the result by hundreds of ulps.
  constexpr double high = -0.70710678118654752440, low = 4.833646656726457e-17;
  const double t = x * high, rest = std::fma(x, high, -t) + x * low;
  if (std::fabs(x) > 40.0) return x < 0.0 ? 0.0 : 1.0;
  return 0.5 * (std::erfc(t) - 2.0 / sqrt_pi * exp_of_square(t, -1.0) * rest);
}

double normcdfinv(double p) { return -1.41421356237309504880 * erfcinv(2.0 * p); }

double cyl_bessel_i0(double x) { return bessel(x, 0); }
double cyl_bessel_i1(double x) { return bessel(x, 1); }

}  // namespace cuda_on_cpu::special
