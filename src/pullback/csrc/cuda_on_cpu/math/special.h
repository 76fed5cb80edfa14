/// Special functions that C's library lacks. Their bodies are compiled once, in the runtime
/// library.
#pragma once

#pragma GCC visibility push(default)

namespace cuda_on_cpu::special {

double sinpi(double x);
double cospi(double x);
/// exp(x^2) erfc(x), also where neither factor can be represented.
double erfcx(double x);
double erfinv(double y);
double erfcinv(double y);
/// The normal distribution's cumulative distribution function, and its inverse.
double normcdf(double x);
double normcdfinv(double p);
double cyl_bessel_i0(double x);
double cyl_bessel_i1(double x);

}  // namespace cuda_on_cpu::special

#pragma GCC visibility pop
