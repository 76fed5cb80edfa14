/// thrust's random numbers: the C++ library's engines; only minstd_rand gives the same numbers.
#pragma once

#include <random>

#include "policy.h"

namespace thrust {
namespace random {
using std::minstd_rand;
using std::minstd_rand0;
using default_random_engine = std::minstd_rand;
template <class T = int>
using uniform_int_distribution = std::uniform_int_distribution<T>;
template <class T = double>
using uniform_real_distribution = std::uniform_real_distribution<T>;
template <class T = double>
using normal_distribution = std::normal_distribution<T>;
}  // namespace random
using namespace random;
}  // namespace thrust
