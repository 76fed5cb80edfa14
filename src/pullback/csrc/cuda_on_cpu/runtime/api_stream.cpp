#include <chrono>
#include <mutex>
#include <set>

#include "../api/stream.h"

struct CUstream_st {
  unsigned flags;
  int priority;
  unsigned long long id;
};
struct CUevent_st {
  unsigned flags;
  bool recorded = false;
  std::chrono::steady_clock::time_point at{};
};

namespace cuda_on_cpu {
namespace {

/// The handles that are alive, so that using a destroyed one is an error and not a crash.
template <class T>
class Handles {
 public:
  T* add(T* handle) {
    const std::lock_guard<std::mutex> locked(mutex_);
    return all_.insert(handle), handle;
  }
  bool has(T* handle) {
    const std::lock_guard<std::mutex> locked(mutex_);
    return all_.count(handle) == 1;
  }
  bool remove(T* handle) {
    const std::lock_guard<std::mutex> locked(mutex_);
    if (all_.erase(handle) == 0) return false;
    delete handle;
    return true;
  }

 private:
  std::mutex mutex_;
  std::set<T*> all_;
};

// Never destroyed: an author's static object may destroy its stream after our statics are gone.
template <class T>
Handles<T>& handles() {
  static auto* all = new Handles<T>;
  return *all;
}

/// The streams that nobody creates: the default one, in its three spellings.
bool is_default(cudaStream_t stream) {
  return !stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}
bool alive(cudaStream_t stream) { return is_default(stream) || handles<CUstream_st>().has(stream); }

}  // namespace
}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (!stream) return answer(cudaErrorInvalidValue);
  static unsigned long long created = 0;
  const auto id = __atomic_add_fetch(&created, 1, __ATOMIC_RELAXED);
  *stream = handles<CUstream_st>().add(new CUstream_st{flags, priority, id});
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return handles<CUstream_st>().remove(stream) ? cudaSuccess
                                               : answer(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  if (!alive(stream)) return answer(cudaErrorInvalidResourceHandle);
  *flags = is_default(stream) ? cudaStreamDefault : stream->flags;
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  if (!alive(stream)) return answer(cudaErrorInvalidResourceHandle);
  *priority = is_default(stream) ? 0 : stream->priority;
  return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  if (!alive(stream)) return answer(cudaErrorInvalidResourceHandle);
  *id = is_default(stream) ? 0 : stream->id;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (!event) return answer(cudaErrorInvalidValue);
  *event = handles<CUevent_st>().add(new CUevent_st{flags});
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return handles<CUevent_st>().remove(event) ? cudaSuccess : answer(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!handles<CUevent_st>().has(event) || !alive(stream)) {
    return answer(cudaErrorInvalidResourceHandle);
  }
  event->at = std::chrono::steady_clock::now();
  event->recorded = true;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return handles<CUevent_st>().has(event) ? cudaSuccess : answer(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  for (const cudaEvent_t each : {start, end}) {
    if (!handles<CUevent_st>().has(each) || !each->recorded ||
        (each->flags & cudaEventDisableTiming)) {
      return answer(cudaErrorInvalidResourceHandle);
    }
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->at - start->at).count();
  return cudaSuccess;
}
