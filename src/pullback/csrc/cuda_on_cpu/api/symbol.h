/// Copies to and from `__device__` and `__constant__` variables, which are ordinary ones.
#pragma once

#include "memory.h"

namespace cuda_on_cpu {

template <class T>
char* symbol_part(const T& symbol, size_t bytes, size_t offset) {
  if (offset > sizeof(T) || bytes > sizeof(T) - offset) return nullptr;
  return const_cast<char*>(reinterpret_cast<const volatile char*>(&symbol)) + offset;
}

}  // namespace cuda_on_cpu

template <class T>
cudaError_t cudaGetSymbolAddress(void** pointer, const T& symbol) {
  *pointer = cuda_on_cpu::symbol_part(symbol, 0, 0);
  return cudaSuccess;
}
template <class T, class P>
cudaError_t cudaGetSymbolAddress(P** pointer, const T& symbol) {
  return cudaGetSymbolAddress(reinterpret_cast<void**>(pointer), symbol);
}
template <class T>
cudaError_t cudaGetSymbolSize(size_t* bytes, const T&) {
  return *bytes = sizeof(T), cudaSuccess;
}
template <class T>
cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind = cudaMemcpyHostToDevice) {
  char* to = cuda_on_cpu::symbol_part(symbol, bytes, offset);
  if (!to) return cuda_on_cpu::answer(cudaErrorInvalidValue);
  return cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  const char* from = cuda_on_cpu::symbol_part(symbol, bytes, offset);
  if (!from) return cuda_on_cpu::answer(cudaErrorInvalidValue);
  return cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, size_t bytes,
                                    size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice,
                                    cudaStream_t = nullptr) {
  return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyDeviceToHost,
                                      cudaStream_t = nullptr) {
  return cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind);
}
