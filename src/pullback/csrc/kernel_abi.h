/// The interface of a compiled kernel: DLPack tensors and plain C, no PyTorch header.
///
/// One binary therefore serves every PyTorch and Python version, and compiles in a tenth of a
/// second. `Tensor` and `DataType` have the layout of DLPack's `DLTensor` and `DLDataType`; the
/// runtime asserts it (kernel.cpp). Declared here, under our own names, so that an author's file may
/// include any version of dlpack.h itself.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace pullback {

constexpr int32_t abi_version = 1;

struct DataType {
  /// 0 signed integer, 1 unsigned, 2 floating, 3 none that a kernel takes, 4 bfloat16, 5 complex,
  /// 6 bool.
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Device {
  int32_t type;  // 1 CPU, 2 CUDA
  int32_t index;
};

struct Tensor {
  void* data;  // null: an optional input that is None, or an output that nobody asked for
  Device device;
  int32_t ndim;
  DataType dtype;
  const int64_t* shape;
  const int64_t* strides;  // in elements, never null
  uint64_t byte_offset;    // always 0
};

union Scalar {
  int64_t integer;
  double real;
  const char* text;
  /// Follows the last scalar of a formula's loop, which sets it if it divides an integer by zero.
  bool* divided;
};

/// The arguments of one call of one kernel.
struct Call {
  int32_t version;
  DataType dtype;  // shared by all tensors whose dtype the line leaves open
  /// The inputs, then the outputs, in the line's order; null: the call only asks which dtypes the
  /// kernel takes.
  const Tensor* tensors;
  const int64_t* dims;    // the named dimensions in order of first appearance
  int64_t batch;          // product of `...`
  const Scalar* scalars;  // in the line's order
  void* stream;           // CUDA: PyTorch's current stream
};

enum Status : int {
  ok = 0,
  dtype_refused = 1,  // message: the dtypes that the kernel takes
  kernel_raised = 2,  // message: what() of the exception, or the CUDA error
  size_overflow = 3,  // message: the size that does not fit the kernel's 32-bit integer
};

/// The entry point of a kernel. On failure it writes a message of at most `capacity` bytes.
using Kernel = int (*)(const Call* call, char* message, uint64_t capacity);

/// A formula's loop on the CPU: `n` elements of one dimension.
///
/// `data` and `strides` have one entry an operand: first the outputs that are wanted, then the
/// inputs that are used, in the line's order. The loop leaves `data` as it finds it: PyTorch steps
/// on from there to the next row.
using Loop = void (*)(char** data, const int64_t* strides /* in bytes */, int64_t n,
                      const Scalar* scalars);

/// One call of a formula's loop on a GPU, of any number of dimensions, the innermost first.
struct Launch {
  int32_t version;
  int32_t ndim;
  const int64_t* shape;
  const int64_t* const* strides;  // of each operand, in each dimension, in bytes
  char* const* data;              // of each operand, in the order of `Loop`
  int32_t operands;
  int64_t n;  // the product of `shape`, never 0; every offset and `n` itself fit in 32 bits
  const Scalar* scalars;
  void* stream;
};

/// The entry point of a formula's loop on a GPU. On failure it writes a message as a kernel does.
using Launcher = int (*)(const Launch* launch, char* message, uint64_t capacity);

/// The arguments of one call of a loop over indices.
struct IndexCall {
  char* const* data;       // the operands: inputs and outputs
  const int64_t* strides;  // in bytes, of every dimension of every operand
  const int64_t* sizes;
  const Scalar* scalars;
};

/// A loop over indices on the CPU, which works on the tasks from `begin` up to `end`.
using IndexKernel = int (*)(const IndexCall* call, int64_t begin, int64_t end);

/// One call of a loop over indices on a GPU.
struct IndexLaunch {
  IndexCall call;
  int64_t tasks;
  int64_t scratch;  // bytes of shared memory for each task
  void* stream;
};

/// The entry point of a loop over indices on a GPU. On failure it writes a message as a kernel does.
using IndexLauncher = int (*)(const IndexLaunch* launch, char* message, uint64_t capacity);

}  // namespace pullback
