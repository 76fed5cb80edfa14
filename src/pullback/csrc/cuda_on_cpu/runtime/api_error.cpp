#include <cctype>
#include <map>
#include <string>

#include "../api/error.h"

namespace cuda_on_cpu {

int& last_error() {
  static thread_local int error = cudaSuccess;
  return error;
}

namespace {

/// CUDA's own texts, which programs and people search for; other errors are described by their
/// names.
const char* known_text(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidSymbol: return "invalid device symbol";
    case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorLaunchOutOfResources: return "too many resources requested for launch";
    case cudaErrorLaunchTimeout: return "the launch timed out and was terminated";
    case cudaErrorPeerAccessNotEnabled: return "peer access has not been enabled";
    case cudaErrorAssert: return "device-side assert triggered";
    case cudaErrorMisalignedAddress: return "misaligned address";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorNotSupported: return "operation not supported";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorUnknown: return "unknown error";
    default: return nullptr;
  }
}

/// "EccUncorrectable" as "ecc uncorrectable".
std::string words(const char* name) {
  std::string text;
  for (const char* c = name; *c; ++c) {
    if (c != name && std::isupper(*c) && !std::isupper(c[-1])) text += ' ';
    text += static_cast<char>(std::tolower(*c));
  }
  return text;
}

struct Told {
  const char* name;
  std::string text;
};

const Told* told(cudaError_t error) {
  static const std::map<int, Told> all = [] {
    std::map<int, Told> made{{cudaSuccess, {"cudaSuccess", "no error"}}};
    const auto add = [&](int value, const char* name) {
      const char* known = known_text(static_cast<cudaError_t>(value));
      made[value] = {name, known ? known : words(name + sizeof "cudaError" - 1)};
    };
#define CUDA_ON_CPU_ERROR(name, value) add(value, "cudaError" #name);
    CUDA_ON_CPU_ERRORS(CUDA_ON_CPU_ERROR)
#undef CUDA_ON_CPU_ERROR
    return made;
  }();
  const auto found = all.find(error);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace
}  // namespace cuda_on_cpu

const char* cudaGetErrorName(cudaError_t error) {
  const auto* told = cuda_on_cpu::told(error);
  return told ? told->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const auto* told = cuda_on_cpu::told(error);
  return told ? told->text.c_str() : "unrecognized error code";
}

cudaError_t cudaPeekAtLastError() { return static_cast<cudaError_t>(cuda_on_cpu::last_error()); }

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  cuda_on_cpu::last_error() = cudaSuccess;
  return error;
}
