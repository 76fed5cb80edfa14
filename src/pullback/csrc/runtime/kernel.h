/// Helpers for every call of compiled code, be it an author's kernel or a formula's loop.
#pragma once

#include "operator.h"

#include <c10/core/DeviceGuard.h>

namespace pullback {

using Scalars = c10::SmallVector<Scalar, 4>;

/// Returns the line's scalars as compiled code sees them; texts belong to `arguments`.
Scalars scalars_of(const Signature& signature, c10::ArrayRef<c10::IValue> arguments);

/// Returns an uninitialised contiguous tensor.
at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype, at::Device device);

/// Makes a GPU the current one, and finds its current stream.
struct OnDevice {
  explicit OnDevice(at::Device device);

  c10::DeviceGuard guard;
  void* stream;
};

/// Throws PB302, PB303 or PB304 for a status that is not `ok`.
[[noreturn]] void refuse(const Signature& signature, at::ScalarType dtype, int status,
                         const char* message);

}  // namespace pullback
