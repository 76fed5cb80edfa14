#include "derivative.h"

namespace pullback {

namespace {

std::mutex mutex;

c10::RegistrationHandleRAII add(const std::string& name, c10::DispatchKey key,
                                c10::KernelFunction kernel) {
  return c10::Dispatcher::singleton().registerImpl(c10::OperatorName(name, ""), key, std::move(kernel),
                                                   std::nullopt, nullptr, "pullback");
}

}  // namespace

Entry& entry_of(const std::string& name) {
  static auto& entries = *new std::map<std::string, std::unique_ptr<Entry>>;
  auto& entry = entries[name];
  if (!entry) entry = std::make_unique<Entry>();
  return *entry;
}

void define(Definition definition) {
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string name = definition.signature.name;
  Entry& entry = entry_of(name);
  if (definition.backward) find_reads(definition.signature, *definition.backward);
  entry.definition = new Definition(std::move(definition));
  if (!entry.autograd_registration) {
    entry.autograd_registration.emplace(add(name, c10::DispatchKey::Autograd, autograd_kernel(entry)));
  }
}

void set_kernel(const std::string& name, c10::DeviceType device, const NativeKernel* kernel) {
  const std::lock_guard<std::mutex> lock(mutex);
  Entry& entry = entry_of(name);
  const bool cuda = device == c10::DeviceType::CUDA;
  auto& registration = cuda ? entry.cuda_registration : entry.cpu_registration;
  (cuda ? entry.cuda : entry.cpu) = kernel;
  if (!kernel) {
    registration.reset();
  } else if (!registration) {
    registration.emplace(
        add(name, cuda ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU, native_kernel(entry, device)));
  }
}

}  // namespace pullback
