// UndefinedBehaviorSanitizer's entry points. The author's units call them where an index is past
// the end of an array of known size, or an address is not aligned as its type needs.
//
// Source:
//   compiler-rt/lib/ubsan/ubsan_handlers.h and ubsan_value.h, for the layout of their arguments.

#ifdef CUDA_ON_CPU_MEMORY
#include <cstdio>

#include "../core.h"
#include "memory.h"

namespace {

struct SourceLocation {
  const char* file;
  uint32_t line, column;
};

struct TypeDescriptor {
  uint16_t kind, info;  // of an integer: its lowest bit, signed; the others, log2 of its bits
  char name[1];         // in quotes: "'float [8]'"
};

struct OutOfBounds {
  SourceLocation place;
  const TypeDescriptor *array, *index;
};

struct TypeMismatch {
  SourceLocation place;
  const TypeDescriptor* type;
  unsigned char log_alignment, kind;
};

std::string text_of(const SourceLocation& place) {
  return std::string(place.file ? place.file : "?") + ":" + std::to_string(place.line);
}

long long value_of(const TypeDescriptor& type, uintptr_t index) {
  const int bits = 1 << (type.info >> 1);
  const int unused = bits < 64 ? 64 - bits : 0;
  const auto shifted = static_cast<uint64_t>(index) << unused;
  return type.info & 1 ? static_cast<int64_t>(shifted) >> unused : int64_t(shifted >> unused);
}

}  // namespace

#define CUDA_ON_CPU_ENTRY extern "C" [[gnu::visibility("default")]]

CUDA_ON_CPU_ENTRY void __ubsan_handle_out_of_bounds(const OutOfBounds* data, uintptr_t index) {
  if (!cuda_on_cpu::in_kernel()) return;
  char what[160];
  std::snprintf(what, sizeof what, "takes element %lld of an array %.100s",
                value_of(*data->index, index), data->array->name);
  cuda_on_cpu::memory::note({.address = 0,
                             .bytes = 0,
                             .write = false,
                             .code = __builtin_return_address(0),
                             .what = what,
                             .place = text_of(data->place)});
}

// Null pointers come here as well: the signal that follows reports them.
CUDA_ON_CPU_ENTRY void __ubsan_handle_type_mismatch_v1(const TypeMismatch* data,
                                                       uintptr_t address) {
  const size_t alignment = size_t{1} << data->log_alignment;
  if (!cuda_on_cpu::in_kernel() || address % alignment == 0) return;
  char what[200];
  std::snprintf(what, sizeof what,
                "takes %.100s from an address that is no multiple of %zu: it is %zu past one",
                data->type->name, alignment, size_t(address % alignment));
  cuda_on_cpu::memory::note({.address = address,
                             .bytes = 0,
                             .write = false,
                             .code = __builtin_return_address(0),
                             .what = what,
                             .place = text_of(data->place),
                             .help = "take the elements one by one, or an address that fits"});
}
#endif
