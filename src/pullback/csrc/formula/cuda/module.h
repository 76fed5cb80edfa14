/// Kernels that NVRTC compiled, as the driver loads them. No CUDA toolkit is needed.
#pragma once

#include <dlfcn.h>
#include <stdint.h>

#if !defined(PULLBACK_DRIVER)  // a test has its own
#define PULLBACK_DRIVER "libcuda.so.1"
#endif

namespace pullback::formula {

/// The part of cuda.h that we use, in plain C: handles are pointers, results and options are int.
struct Driver {
  using GetErrorString = int(int, const char**);
  using LibraryLoadData = int(void**, const void*, int*, void**, unsigned, int*, void**, unsigned);
  using LibraryGetKernel = int(void**, void*, const char*);
  using LaunchKernel = int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, void*, void**, void**);
  using KernelSetAttribute = int(int, int, void*, int);
  using CtxGetDevice = int(int*);
  using CtxGetCurrent = int(void**);
  using CtxSetCurrent = int(void*);
  using PointerGetAttribute = int(void*, int, unsigned long long);
  using DevicePrimaryCtxRetain = int(void**, int);
  static constexpr int most_dynamic_shared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  static constexpr int device_ordinal = 9;       // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

  void* library = dlopen(PULLBACK_DRIVER, RTLD_NOW | RTLD_LOCAL);
  GetErrorString* get_error_string = find<GetErrorString>("cuGetErrorString");
  LibraryLoadData* load = find<LibraryLoadData>("cuLibraryLoadData");
  LibraryGetKernel* get_kernel = find<LibraryGetKernel>("cuLibraryGetKernel");
  LaunchKernel* launch = find<LaunchKernel>("cuLaunchKernel");
  KernelSetAttribute* set_attribute = find<KernelSetAttribute>("cuKernelSetAttribute");
  CtxGetDevice* get_device = find<CtxGetDevice>("cuCtxGetDevice");
  CtxGetCurrent* get_context = find<CtxGetCurrent>("cuCtxGetCurrent");
  CtxSetCurrent* set_context = find<CtxSetCurrent>("cuCtxSetCurrent");
  PointerGetAttribute* get_attribute = find<PointerGetAttribute>("cuPointerGetAttribute");
  DevicePrimaryCtxRetain* retain = find<DevicePrimaryCtxRetain>("cuDevicePrimaryCtxRetain");

  template <class Function>
  Function* find(const char* name) const {
    void* const found = library ? dlsym(library, name) : nullptr;
    if (!found) throw "the NVIDIA driver is missing, or older than CUDA 12";
    return reinterpret_cast<Function*>(found);
  }
  /// Throws the driver's own words for anything but success.
  void require(int result) const {
    if (result == 0) return;
    const char* text = nullptr;
    get_error_string(result, &text);
    throw text ? text : "an error that the driver has no words for";
  }
  /// Gives this thread the context of the GPU where `data` is, if it has none.
  ///
  /// CUDA's runtime does so in each of its calls. A thread may come here before its first such
  /// call.
  void require_context(const void* data) const {
    void* context = nullptr;
    require(get_context(&context));
    if (context) return;
    int device = 0;
    require(get_attribute(&device, device_ordinal, reinterpret_cast<unsigned long long>(data)));
    require(retain(&context, device));
    require(set_context(context));
  }
};

/// Compiled kernels, loaded. A CUlibrary, unlike a CUmodule, serves every GPU.
struct Module {
  Driver driver;
  void* library = nullptr;

  explicit Module(const void* cubin) {
    driver.require(driver.load(&library, cubin, nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  /// Returns a kernel by its name.
  void* find(const char* name) const {
    void* kernel = nullptr;
    driver.require(driver.get_kernel(&kernel, library, name));
    return kernel;
  }
  /// Allows a kernel's blocks on the current GPU more dynamic shared memory than they have unasked.
  void allow_shared(void* kernel, unsigned bytes) const {
    int device = 0;
    driver.require(driver.get_device(&device));
    driver.require(
        driver.set_attribute(Driver::most_dynamic_shared, static_cast<int>(bytes), kernel, device));
  }
  void launch(void* kernel, unsigned blocks, unsigned threads, unsigned shared, void* stream,
              void** parameters) const {
    driver.require(
        driver.launch(kernel, blocks, 1, 1, threads, 1, 1, shared, stream, parameters, nullptr));
  }
};

}  // namespace pullback::formula
