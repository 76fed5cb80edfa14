/// The result of a call of the runtime API, and the error that a thread remembers.
#pragma once

#define CUDA_ON_CPU_ERRORS(X) \
  X(InvalidValue, 1) X(MemoryAllocation, 2) X(InitializationError, 3) X(CudartUnloading, 4) \
  X(ProfilerDisabled, 5) X(ProfilerNotInitialized, 6) X(ProfilerAlreadyStarted, 7) \
  X(ProfilerAlreadyStopped, 8) X(InvalidConfiguration, 9) X(InvalidPitchValue, 12) \
  X(InvalidSymbol, 13) X(InvalidHostPointer, 16) X(InvalidDevicePointer, 17) \
  X(InvalidTexture, 18) X(InvalidTextureBinding, 19) X(InvalidChannelDescriptor, 20) \
  X(InvalidMemcpyDirection, 21) X(AddressOfConstant, 22) X(TextureFetchFailed, 23) \
  X(TextureNotBound, 24) X(SynchronizationError, 25) X(InvalidFilterSetting, 26) \
  X(InvalidNormSetting, 27) X(MixedDeviceExecution, 28) X(NotYetImplemented, 31) \
  X(MemoryValueTooLarge, 32) X(StubLibrary, 34) X(InsufficientDriver, 35) \
  X(CallRequiresNewerDriver, 36) X(InvalidSurface, 37) X(DuplicateVariableName, 43) \
  X(DuplicateTextureName, 44) X(DuplicateSurfaceName, 45) X(DevicesUnavailable, 46) \
  X(IncompatibleDriverContext, 49) X(MissingConfiguration, 52) X(PriorLaunchFailure, 53) \
  X(LaunchMaxDepthExceeded, 65) X(LaunchFileScopedTex, 66) X(LaunchFileScopedSurf, 67) \
  X(SyncDepthExceeded, 68) X(LaunchPendingCountExceeded, 69) X(InvalidDeviceFunction, 98) \
  X(NoDevice, 100) X(InvalidDevice, 101) X(DeviceNotLicensed, 102) \
  X(SoftwareValidityNotEstablished, 103) X(StartupFailure, 127) X(InvalidKernelImage, 200) \
  X(DeviceUninitialized, 201) X(MapBufferObjectFailed, 205) X(UnmapBufferObjectFailed, 206) \
  X(ArrayIsMapped, 207) X(AlreadyMapped, 208) X(NoKernelImageForDevice, 209) \
  X(AlreadyAcquired, 210) X(NotMapped, 211) X(NotMappedAsArray, 212) X(NotMappedAsPointer, 213) \
  X(ECCUncorrectable, 214) X(UnsupportedLimit, 215) X(DeviceAlreadyInUse, 216) \
  X(PeerAccessUnsupported, 217) X(InvalidPtx, 218) X(InvalidGraphicsContext, 219) \
  X(NvlinkUncorrectable, 220) X(JitCompilerNotFound, 221) X(UnsupportedPtxVersion, 222) \
  X(JitCompilationDisabled, 223) X(UnsupportedExecAffinity, 224) X(UnsupportedDevSideSync, 225) \
  X(Contained, 226) X(InvalidSource, 300) X(FileNotFound, 301) \
  X(SharedObjectSymbolNotFound, 302) X(SharedObjectInitFailed, 303) X(OperatingSystem, 304) \
  X(InvalidResourceHandle, 400) X(IllegalState, 401) X(LossyQuery, 402) X(SymbolNotFound, 500) \
  X(NotReady, 600) X(IllegalAddress, 700) X(LaunchOutOfResources, 701) X(LaunchTimeout, 702) \
  X(LaunchIncompatibleTexturing, 703) X(PeerAccessAlreadyEnabled, 704) \
  X(PeerAccessNotEnabled, 705) X(SetOnActiveProcess, 708) X(ContextIsDestroyed, 709) \
  X(Assert, 710) X(TooManyPeers, 711) X(HostMemoryAlreadyRegistered, 712) \
  X(HostMemoryNotRegistered, 713) X(HardwareStackError, 714) X(IllegalInstruction, 715) \
  X(MisalignedAddress, 716) X(InvalidAddressSpace, 717) X(InvalidPc, 718) X(LaunchFailure, 719) \
  X(CooperativeLaunchTooLarge, 720) X(TensorMemoryLeak, 721) X(NotPermitted, 800) \
  X(NotSupported, 801) X(SystemNotReady, 802) X(SystemDriverMismatch, 803) \
  X(CompatNotSupportedOnDevice, 804) X(MpsConnectionFailed, 805) X(MpsRpcFailure, 806) \
  X(MpsServerNotReady, 807) X(MpsMaxClientsReached, 808) X(MpsMaxConnectionsReached, 809) \
  X(MpsClientTerminated, 810) X(CdpNotSupported, 811) X(CdpVersionMismatch, 812) \
  X(StreamCaptureUnsupported, 900) X(StreamCaptureInvalidated, 901) X(StreamCaptureMerge, 902) \
  X(StreamCaptureUnmatched, 903) X(StreamCaptureUnjoined, 904) X(StreamCaptureIsolation, 905) \
  X(StreamCaptureImplicit, 906) X(CapturedEvent, 907) X(StreamCaptureWrongThread, 908) \
  X(Timeout, 909) X(GraphExecUpdateFailure, 910) X(ExternalDevice, 911) \
  X(InvalidClusterSize, 912) X(FunctionNotLoaded, 913) X(InvalidResourceType, 914) \
  X(InvalidResourceConfiguration, 915) X(Unknown, 999)

enum cudaError {
  cudaSuccess = 0,
  cudaErrorApiFailureBase = 10000,
#define CUDA_ON_CPU_ERROR(name, value) cudaError##name = value,
  CUDA_ON_CPU_ERRORS(CUDA_ON_CPU_ERROR)
#undef CUDA_ON_CPU_ERROR
};
typedef enum cudaError cudaError_t;

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

namespace cuda_on_cpu {

/// The error that cudaGetLastError() returns and clears: one for each OS thread.
int& last_error();

/// Returns a call's result; an error is also remembered.
inline cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) last_error() = error;
  return error;
}

}  // namespace cuda_on_cpu
