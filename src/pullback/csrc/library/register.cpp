/// Registering the operators of a library when it is loaded.
///
/// An exception from `TORCH_LIBRARY` while a library is loaded ends the process, since nobody can
/// catch it. So everything is checked before anything is registered, and a fault becomes an
/// exception in Python.
#include "instructions.h"
#include "library.h"

#include <dlfcn.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace pullback {

namespace {

/// Runs on every device that has no kernel, and says so.
class MissingFunctor final : public c10::OperatorKernel {
 public:
  explicit MissingFunctor(const Entry& entry) : entry_(entry) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const Definition& definition = *entry_.definition.load();
    const Signature& signature = definition.signature;
    const auto arguments = torch::jit::last(*stack, signature.arguments);
    const auto given = [&](const TensorSpec& input) {
      return tensor_of(arguments[input.argument]).defined();
    };
    if (std::none_of(signature.inputs.begin(), signature.inputs.end(), given)) {
      fail("no-kernel [PB351]", signature,
           "every tensor is None, so PyTorch cannot tell the device", "pass at least one tensor");
    }
    // Report a wrong input first: a sparse tensor on the CPU comes here as well.
    const Sizes sizes = solve(signature, arguments);
    fail("no-kernel [PB351]", signature, "this library has no kernel for " + sizes.device.str(),
         cure(definition));
  }

 private:
  static const char* cure(const Definition& definition) {
    const auto& formula = definition.formula;
    if (definition.computation)
      return "move the tensors to cpu; loops over indices for GPUs are in a library that was built "
             "with --arch";
    if (definition.cpu.function || (formula && formula->cpu)) return "move the tensors to cpu";
    // Python may pretend that there is a GPU; a kernel that nvcc compiled does not run there.
    return definition.cuda.function || (formula && formula->cuda)
               ? "move the tensors to cuda; where a GPU is only pretended, import the file that "
                 "defines the operator"
               : "compile it where there is nvcc, for a GPU; for the CPU, import the file that "
                 "defines the operator";
  }

  const Entry& entry_;
};

/// Whether this CPU has some instructions; false for names that are not known here.
bool has([[maybe_unused]] std::string_view name) {
#if defined(__x86_64__)
  if (name == "avx2") return __builtin_cpu_supports("avx2");
  if (name == "fma") return __builtin_cpu_supports("fma");
  if (name == "bmi2") return __builtin_cpu_supports("bmi2");
  if (name == "avx512f") return __builtin_cpu_supports("avx512f");
  if (name == "avx512bw") return __builtin_cpu_supports("avx512bw");
  if (name == "avx512cd") return __builtin_cpu_supports("avx512cd");
  if (name == "avx512dq") return __builtin_cpu_supports("avx512dq");
  if (name == "avx512vl") return __builtin_cpu_supports("avx512vl");
#endif
  return false;
}

/// Returns the reason why the operators cannot be registered; empty if they can.
std::string obstacle(const std::vector<Definition>& definitions) {
  for (const char* const* name = needed_instructions; *name; ++name) {
    if (has(*name)) continue;
    return std::string("instructions-missing [PB737]") +
           ": this library was compiled for CPUs that have " + *name +
           ", and this one has not\n    help: compile it with cmake -DPULLBACK_ARCHITECTURE=x86-64";
  }
  std::string taken;
  for (const Definition& definition : definitions) {
    const std::string& name = definition.signature.name;
    if (c10::Dispatcher::singleton().findSchema({name, ""}))
      taken += (taken.empty() ? "" : ", ") + name;
  }
  if (taken.empty()) return taken;
  return std::string("defined-already [PB730]") + ": this library registers " + taken +
         ", which this process has registered already\n"
         "    help: load the library, or import the Python file that defines its operators, not "
         "both";
}

std::string& pending_text() {
  static std::string text;
  return text;
}

int raise_pending(void*) {
  const auto error =
      reinterpret_cast<void (*)(void*, const char*)>(dlsym(RTLD_DEFAULT, "PyErr_SetString"));
  void** const type = static_cast<void**>(dlsym(RTLD_DEFAULT, "PyExc_RuntimeError"));
  error(*type, pending_text().c_str());
  return -1;
}

/// Raises in Python as soon as Python continues, which is in the very statement that loads the
/// library. Without Python, or if Python's queue of pending calls is full, throws: that ends the
/// process with the text.
void refuse(const std::string& text) {
  const auto is_running = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  const auto add =
      reinterpret_cast<int (*)(int (*)(void*), void*)>(dlsym(RTLD_DEFAULT, "Py_AddPendingCall"));
  pending_text() = text;
  if (!is_running || !add || !is_running() || add(raise_pending, nullptr) != 0) raise(text);
}

/// Shows the library's C functions to libraries that are loaded later.
///
/// `torch.ops.load_library` loads it with local symbols, and a program that AOTInductor compiled
/// has to find them.
void show_functions() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&register_operators), &self) && self.dli_fname) {
    dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  }
}

void register_one(torch::Library& library, const Built& built, Definition definition) {
  const c10::OperatorName name(definition.signature.name, "");
  library.def(built.schema, {at::Tag::pt2_compliant_tag});
  define(std::move(definition));
  const Entry& entry = entry_of(name.name);
  const auto implement = [&](c10::DispatchKey key, c10::KernelFunction kernel) {
    // As long as the process, as is everything else that the runtime registers.
    new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().registerImpl(
        name, key, std::move(kernel), std::nullopt, nullptr, "pullback"));
  };
  implement(c10::DispatchKey::Meta, meta_kernel(entry));
  implement(c10::DispatchKey::CompositeExplicitAutograd,
            c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<MissingFunctor>(entry)));
  if (built.autocast == Autocast::as_is) return;
  implement(c10::DispatchKey::AutocastCPU,
            autocast_kernel(entry, built.autocast, c10::DeviceType::CPU));
  implement(c10::DispatchKey::AutocastCUDA,
            autocast_kernel(entry, built.autocast, c10::DeviceType::CUDA));
}

}  // namespace

void register_operators(torch::Library& library, std::initializer_list<Built> operators) {
  std::vector<Definition> definitions;
  for (const Built& built : operators) definitions.push_back(built.definition());
  const std::string text = obstacle(definitions);
  if (!text.empty()) return refuse(text);
  show_functions();
  size_t next = 0;
  for (const Built& built : operators) register_one(library, built, std::move(definitions[next++]));
}

}  // namespace pullback
