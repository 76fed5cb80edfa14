#include "derivative.h"

namespace pullback {

namespace {

std::mutex mutex;

/// Registers or removes a kernel, so that the dispatcher has it exactly if the definition does.
template <class Make>
void set(std::optional<c10::RegistrationHandleRAII>& handle, bool present, const std::string& name,
         c10::DispatchKey key, Make make) {
  if (!present) {
    handle.reset();
  } else if (!handle) {
    handle.emplace(c10::Dispatcher::singleton().registerImpl(
        c10::OperatorName(name, ""), key, make(), std::nullopt, nullptr, "pullback"));
  }
}

}  // namespace

bool continues(const Definition& definition, const Definition& earlier) {
  return definition.supply && earlier.supply &&
         definition.supply->identity() == earlier.supply->identity();
}

Entry& entry_of(const std::string& name) {
  static auto& entries = *new std::map<std::string, std::unique_ptr<Entry>>;
  auto& entry = entries[name];
  if (!entry) entry = std::make_unique<Entry>();
  return *entry;
}

void define(Definition given) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (given.backward) find_reads(given.signature, *given.backward);
  for (auto& keeping : given.keepings)
    if (keeping) find_reads(given.signature, keeping->backward);
  Entry& entry = entry_of(given.signature.name);
  if (const Definition* earlier = entry.definition;
      earlier && given.formula && continues(given, *earlier)) {
    given.formula->loops = earlier->formula->loops;
  }
  const auto* definition = new Definition(std::move(given));
  const std::string& name = definition->signature.name;
  entry.definition = definition;
  const bool taken = definition->taken != Definition::Taken::no;
  if (definition->taken == Definition::Taken::with_own_derivative && !entry.own_derivative) {
    entry.own_derivative = c10::Dispatcher::singleton()
                               .findSchemaOrThrow(name.c_str(), "")
                               .getComputedKernelForDispatchKey(c10::DispatchKey::AutogradCPU);
  }
  const auto autograd = [&] { return autograd_kernel(entry); };
  set(entry.autograd, !taken, name, c10::DispatchKey::Autograd, autograd);
  // A more specific key than that of the operator's own kernel: comes before it without replacing
  // it.
  set(entry.autograd_cpu, taken, name, c10::DispatchKey::AutogradCPU, autograd);
  set(entry.autograd_cuda, taken, name, c10::DispatchKey::AutogradCUDA, autograd);
  const auto& formula = definition->formula;
  const auto computes = [&](c10::DeviceType device) {
    return definition->computation && definition->computation->runs_on(device);
  };
  set(entry.cpu,
      definition->cpu.function || (formula && formula->cpu) || computes(c10::DeviceType::CPU), name,
      c10::DispatchKey::CPU, [&] { return native_kernel(entry, c10::DeviceType::CPU); });
  set(entry.cuda,
      definition->cuda.function || (formula && formula->cuda) || computes(c10::DeviceType::CUDA),
      name, c10::DispatchKey::CUDA, [&] { return native_kernel(entry, c10::DeviceType::CUDA); });
}

}  // namespace pullback
