/// The boxed kernel: checks the line, allocates the outputs, calls the compiled function.
#include "kernel.h"
#include "running.h"

#include <ATen/EmptyTensor.h>
#include <ATen/dlpack.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>

namespace pullback {

namespace {

static_assert(sizeof(Tensor) == sizeof(DLTensor) && sizeof(DataType) == sizeof(DLDataType));
static_assert(offsetof(Tensor, data) == offsetof(DLTensor, data));
static_assert(offsetof(Tensor, device) == offsetof(DLTensor, device));
static_assert(offsetof(Tensor, ndim) == offsetof(DLTensor, ndim));
static_assert(offsetof(Tensor, dtype) == offsetof(DLTensor, dtype));
static_assert(offsetof(Tensor, shape) == offsetof(DLTensor, shape));
static_assert(offsetof(Tensor, strides) == offsetof(DLTensor, strides));
static_assert(offsetof(Tensor, byte_offset) == offsetof(DLTensor, byte_offset));

/// A dtype in DLPack's form; one that no kernel can name is opaque, so that none mistakes it for
/// another.
DataType data_type(at::ScalarType dtype) {
  const auto bits = static_cast<uint8_t>(8 * c10::elementSize(dtype));
  switch (dtype) {
    case at::kBool: return {kDLBool, 8, 1};
    case at::kByte: return {kDLUInt, 8, 1};
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong: return {kDLInt, bits, 1};
    case at::kHalf:
    case at::kFloat:
    case at::kDouble: return {kDLFloat, bits, 1};
    case at::kBFloat16: return {kDLBfloat, bits, 1};
    case at::kComplexFloat:
    case at::kComplexDouble: return {kDLComplex, bits, 1};
    default: return {kDLOpaqueHandle, bits, 1};
  }
}

/// An input as the kernel wants it: expanded over `...` and, unless it takes strides, contiguous.
///
/// `storage` keeps a tensor alive that had to be made for this.
const at::Tensor& prepare(const at::Tensor& tensor, const TensorSpec& spec, const Sizes& sizes,
                          bool strided, c10::SmallVectorImpl<at::Tensor>& storage) {
  const at::Tensor* prepared = &tensor;
  if (spec.batched) {
    const auto own = tensor.sizes().slice(spec.before.size(), tensor.dim() - spec.core());
    if (!own.equals(sizes.batch)) {
      Ints shape(tensor.sizes().begin(), tensor.sizes().begin() + spec.before.size());
      shape.append(sizes.batch.begin(), sizes.batch.end());
      shape.append(tensor.sizes().end() - spec.after.size(), tensor.sizes().end());
      at::Tensor aligned = tensor;
      for (size_t d = own.size(); d < sizes.batch.size(); ++d)
        aligned = aligned.unsqueeze(spec.before.size());
      storage.push_back(aligned.expand(shape));
      prepared = &storage.back();
    }
  }
  if ((!strided && !prepared->is_contiguous()) || prepared->is_conj() || prepared->is_neg()) {
    storage.push_back(prepared->resolve_conj().resolve_neg().contiguous());
    prepared = &storage.back();
  }
  return *prepared;
}

Tensor describe(const at::Tensor& tensor) {
  return {tensor.numel() ? const_cast<void*>(tensor.const_data_ptr()) : nullptr,
          {tensor.is_cpu() ? kDLCPU : kDLCUDA, tensor.is_cpu() ? 0 : tensor.device().index()},
          static_cast<int32_t>(tensor.dim()),
          data_type(tensor.scalar_type()),
          tensor.sizes().data(),
          tensor.strides().data(),
          0};
}

Scalar scalar(const ScalarSpec& spec, const c10::IValue& value) {
  Scalar result{};
  switch (spec.kind) {
    case ScalarSpec::Kind::integer: result.integer = value.toInt(); break;
    case ScalarSpec::Kind::boolean: result.integer = value.toBool(); break;
    case ScalarSpec::Kind::real: result.real = value.toDouble(); break;
    case ScalarSpec::Kind::text: result.text = value.toStringRef().c_str(); break;
  }
  return result;
}

class NativeFunctor final : public c10::OperatorKernel {
 public:
  NativeFunctor(const Entry& entry, c10::DeviceType device) : entry_(entry), device_(device) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const Definition& definition = *entry_.definition.load();
    const Signature& signature = definition.signature;
    const NativeKernel& kernel =
        device_ == c10::DeviceType::CUDA ? definition.cuda : definition.cpu;
    // Tested at each call, so that a redefinition from or to a formula needs no other kernel.
    if (!kernel.function && definition.computation) {
      if (!definition.computation->call(signature, device_, *stack))
        op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
      return;
    }
    if (!kernel.function) return call_formula(definition, device_, *stack);
    const auto arguments = torch::jit::last(*stack, signature.arguments);
    const Sizes sizes = solve(signature, arguments);
    c10::SmallVector<at::Tensor, 2> outputs = run(signature, kernel, sizes, arguments);
    torch::jit::drop(*stack, signature.arguments);
    for (at::Tensor& output : outputs) stack->emplace_back(std::move(output));
  }

 private:
  c10::SmallVector<at::Tensor, 2> run(const Signature& signature, const NativeKernel& kernel,
                                      const Sizes& sizes,
                                      c10::ArrayRef<c10::IValue> arguments) const {
    const size_t inputs = signature.inputs.size();
    // Reserved in full: `describe` keeps pointers into the tensors.
    c10::SmallVector<at::Tensor, 4> storage;
    storage.reserve(2 * inputs);
    c10::SmallVector<Tensor, 8> tensors;
    for (const TensorSpec& spec : signature.inputs) {
      const at::Tensor& tensor = tensor_of(arguments[spec.argument]);
      tensors.push_back(tensor.defined()
                            ? describe(prepare(tensor, spec, sizes, kernel.strided, storage))
                            : Tensor{});
    }
    c10::SmallVector<at::Tensor, 2> outputs(signature.outputs.size());
    bool empty = true;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (wanted(signature, arguments, i)) {
        const Ints shape = shape_of(signature.outputs[i], signature, sizes, arguments);
        outputs[i] =
            allocate(shape, signature.outputs[i].dtype.value_or(sizes.dtype), sizes.device);
        empty = empty && outputs[i].numel() == 0;
        tensors.push_back(describe(outputs[i]));
      } else {
        tensors.push_back({});
      }
    }
    // Nothing to write, and a launch without blocks would be an error. But a wrong dtype is still
    // one.
    call(signature, kernel, sizes, arguments, empty ? nullptr : tensors.data());
    return outputs;
  }

  void call(const Signature& signature, const NativeKernel& kernel, const Sizes& sizes,
            c10::ArrayRef<c10::IValue> arguments, const Tensor* tensors) const {
    const Scalars scalars = scalars_of(signature, arguments);
    int64_t batch = 1;
    for (const int64_t size : sizes.batch) batch *= size;
    Call call{abi_version, data_type(sizes.dtype), tensors, sizes.dims.data(),
              batch,       scalars.data(),         nullptr};
    char message[4096];  // not zeroed: that would cost as much as a small kernel
    message[0] = '\0';
    int status = 0;
    if (device_ == c10::DeviceType::CPU) {
      const InKernel in(signature.name.c_str());
      status = kernel.function(&call, message, sizeof message);
    } else {
      const OnDevice on(sizes.device);
      call.stream = on.stream;
      status = kernel.function(&call, message, sizeof message);
    }
    if (C10_UNLIKELY(status != Status::ok)) refuse(signature, sizes.dtype, status, message);
  }

  const Entry& entry_;
  const c10::DeviceType device_;
};

}  // namespace

at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype, at::Device device) {
  // The direct call avoids the dispatcher, which is a fifth of a small call.
  if (device.is_cpu()) return at::detail::empty_cpu(shape, dtype);
  return at::empty(shape, at::TensorOptions().dtype(dtype).device(device));
}

Scalars scalars_of(const Signature& signature, c10::ArrayRef<c10::IValue> arguments) {
  Scalars scalars;
  for (const ScalarSpec& spec : signature.scalars)
    scalars.push_back(scalar(spec, arguments[spec.argument]));
  return scalars;
}

OnDevice::OnDevice(at::Device device) : guard(device) {
  const c10::impl::VirtualGuardImpl implementation(device.type());
  stream = implementation.getStreamNativeHandle(implementation.getStream(device));
}

void refuse(const Signature& signature, at::ScalarType dtype, int status, const char* message) {
  switch (status) {
    case Status::dtype_refused:
      fail("kernel-dtype [PB302]", signature,
           "its kernel does not take " + dtype_text(dtype) + "; it takes " + message,
           "convert the inputs; or, if the kernel is a template, name the dtype: pb.source(..., "
           "dtypes=[...])");
    case Status::size_overflow:
      fail("kernel-size [PB303]", signature, message, "let the kernel take its sizes as int64_t");
    default: {
      // A CUDA kernel on the CPU reports a finding of its own: "rule [code]: text, rows".
      const std::string text = message;
      const size_t end = text.find("]: ");
      if (end != std::string::npos && text.find(" [PB") < end) {
        fail(text.substr(0, end + 1).c_str(), signature, text.substr(end + 3));
      }
      fail("kernel-raised [PB304]", signature, "its kernel raised: " + text);
    }
  }
}

c10::KernelFunction native_kernel(const Entry& entry, c10::DeviceType device) {
  return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<NativeFunctor>(entry, device));
}

}  // namespace pullback
