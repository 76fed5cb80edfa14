/// Execution policies: where thrust is to run. Here all run on the host, in the call.
#pragma once

#include <type_traits>

#include "../include/cuda_runtime.h"

#define THRUST_VERSION 200400
#define THRUST_MAJOR_VERSION 2
#define THRUST_MINOR_VERSION 4
#define THRUST_DEVICE_SYSTEM_CUDA 1
#define THRUST_DEVICE_SYSTEM 1

namespace thrust {

struct execution_policy_base {};
template <class Derived>
struct execution_policy : execution_policy_base {};

struct Policy : execution_policy<Policy> {
  /// With an allocator for temporary memory, and on a stream.
  template <class Allocator>
  Policy operator()(Allocator&&) const {
    return {};
  }
  Policy on(cudaStream_t) const { return {}; }
};
constexpr Policy device{}, host{}, seq{};

namespace cuda {
constexpr Policy par{}, par_nosync{};
}
namespace cuda_cub {
constexpr Policy par{}, par_nosync{};
}
namespace system::cuda {
constexpr Policy par{}, par_nosync{};
}

template <class T>
using IfPolicy = std::enable_if_t<std::is_base_of_v<execution_policy_base, std::decay_t<T>>, int>;

}  // namespace thrust

/// The form of an algorithm that takes a policy first.
#define CUDA_ON_CPU_POLICY(name)                                             \
  template <class P, class... A, ::thrust::IfPolicy<P> = 0>                  \
  auto name(P&&, A&&... arguments) {                                         \
    return ::thrust::name(static_cast<A&&>(arguments)...);                   \
  }
