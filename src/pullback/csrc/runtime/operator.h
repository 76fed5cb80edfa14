/// An operator as the runtime holds it, and the dispatcher entries that lead to it.
#pragma once

#include "../kernel_abi.h"
#include "formula.h"
#include "signature.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

namespace pullback {

/// Where an argument of a derivative's call comes from.
struct Reference {
  enum class Origin {
    grad,      // of output `index`
    tangent,   // of input `index`
    argument,  // `index` of the forward call: a tensor or a scalar
    output,    // `index` of the forward call
    result,    // number `result` of call `index` of the same program
    constant,
    mask,  // which results of this call are needed
  } origin;
  size_t index = 0;
  size_t result = 0;
  bool optional = false;  // an undefined gradient or tangent is passed as None, not as zeros
  c10::IValue constant = {};
};

/// A derivative: calls of operators, and which of their results is which gradient.
///
/// This is all that the runtime knows about derivatives. A call goes through the dispatcher, so it
/// is itself differentiable, traceable and batchable.
struct Program {
  struct OperatorCall {
    c10::OperatorName operator_name;
    std::vector<Reference> arguments;
    size_t results = 1;
  };

  /// What a result reads from the forward call, one bit an argument or output.
  struct Reads {
    uint64_t tensors = 0, outputs = 0;
    bool scalars = false;
  };

  std::vector<OperatorCall> calls;
  std::vector<std::optional<Reference>> results;  // one an input (backward) or output (jvp)
  std::vector<Reads> reads = {};                  // one a result, filled by `define`
};

/// How a call that is recorded keeps what its first derivative reads: the maxima and sums of rows, or
/// its gradients themselves.
///
/// Another operator returns this behind the outputs. The node saves it, and nobody else sees it; a
/// derivative that is itself recorded computes it again, and so is differentiable like any other.
struct Keeping {
  c10::OperatorName forward;
  size_t outputs = 0;  // of `forward`
  Program backward;    // reads them by their place
  bool is_scaled =
      false;  // it multiplies what was kept, the gradients for a gradient of 1, by another
};

/// Which calls keep statistics of the rows of a tensor: those for which it is worth an output more.
///
/// bind/math/kept.py has the same in Python.
struct Rows {
  size_t argument;               // the tensor
  std::vector<int64_t> reduced;  // its dimensions that the statistics lack
  int64_t least_length, least_rows, least_elements;
};

struct NativeKernel {
  Kernel function = nullptr;  // null: there is none
  bool strided = false;       // takes inputs with any strides; otherwise they arrive contiguous
};

struct Definition;

/// Computes an operator that has neither a kernel nor a formula's loop.
///
/// Such a one is in index notation: in a library without Python any call of it
/// (csrc/library/indexed.cpp), else those that are known (python/shortcuts.cpp).
class Computation {
 public:
  virtual ~Computation() = default;

  virtual bool runs_on(c10::DeviceType device) const = 0;

  /// Replaces the arguments on the stack by the outputs; returns false, and leaves them there, if
  /// the operator's kernel in Python has to.
  virtual bool call(const Signature& signature, c10::DeviceType device,
                    torch::jit::Stack& stack) const = 0;
};

struct Definition {
  Signature signature;
  std::optional<Program> backward, jvp;
  /// Of rows the second is that in half precision, whose statistics are kept in single.
  std::vector<std::optional<Keeping>> keepings;
  std::optional<Rows> rows;
  NativeKernel cpu, cuda;
  std::optional<Formula> formula;                  // computes it on the devices that have no kernel
  std::shared_ptr<const Computation> computation;  // or this does
  /// Of a formula, also one in index notation; null: nothing is made later.
  std::shared_ptr<Supply> supply;
  /// Whether it was registered by somebody else and is taken over; a derivative of its own stays,
  /// and gets a forward mode.
  enum class Taken { no, yes, with_own_derivative } taken = Taken::no;
};

/// Everything under one name. It lives as long as the process: the dispatcher's entry is never
/// erased, so that a graph recorded before a redefinition still finds an operator of that name.
struct Entry {
  std::atomic<const Definition*> definition{nullptr};
  std::optional<c10::RegistrationHandleRAII> autograd, autograd_cpu, autograd_cuda, cpu, cuda;
  std::optional<c10::SafeKernelFunction> own_derivative;  // of an operator that was taken over
};

Entry& entry_of(const std::string& name);

/// Whether a definition is an earlier one with more derivatives: the same formula, the same schema.
bool continues(const Definition& definition, const Definition& earlier);

/// Defines or redefines an operator. What it replaces is kept: another thread may be inside it.
void define(Definition definition);

c10::KernelFunction native_kernel(const Entry& entry, c10::DeviceType device);  // kernel.cpp
c10::KernelFunction autograd_kernel(const Entry& entry);                        // autograd.cpp

}  // namespace pullback
