// Describes the memory at and around an address: from AddressSanitizer's data about the heap and
// variables, its marks on stacks, and the shared memory of the running block.

#ifdef CUDA_ON_CPU_MEMORY
#include "memory.h"

#include <dlfcn.h>
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "line_of.h"

extern "C" void __asan_get_shadow_mapping(size_t* scale, size_t* offset);

namespace cuda_on_cpu::memory {
namespace {

// AddressSanitizer begins the frame of a function that has arrays with this number and a text:
// "2 32 16 3 v:4 64 8 1 w" is 2 variables; v, of 16 bytes at offset 32, ...
constexpr uint64_t frame_begins = 0x41B58AB3;
constexpr int most_of_a_frame = 1 << 16;
// An access farther from an allocation than this has nothing to do with it.
constexpr uintptr_t nearby = 1 << 16;

std::string bytes_of(size_t bytes) {
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

std::string quoted(const char* name) { return std::string(" '") + name + "'"; }

/// "past the end of WHAT of N bytes" and "K bytes after ...", for an address around [low, low+n).
Around beside(uintptr_t address, uintptr_t low, size_t bytes, const std::string& what) {
  const std::string whole = what + " of " + bytes_of(bytes);
  if (address < low)
    return {"before the start of " + whole, bytes_of(low - address) + " before it"};
  if (address >= low + bytes) {
    return {"past the end of " + whole, bytes_of(address - low - bytes) + " after its end"};
  }
  return {"of " + whole, bytes_of(address - low) + " into " + whole};
}

bool contains(const char* text, const char* part) { return text && std::strstr(text, part); }

/// The function in a call stack that allocated or freed: "cudaMalloc at add.cu:50", "PyTorch".
std::string by(void* const* calls, int count, std::string function) {
  Dl_info here, found;
  if (!::dladdr(reinterpret_cast<void*>(&around), &here)) return function;
  for (int i = 0; i < count; ++i) {
    if (!::dladdr(calls[i], &found)) continue;
    // This library allocates for authors only in functions with these names.
    if (found.dli_fbase == here.dli_fbase)
      function = function == "free" ? "cudaFree" : "cudaMalloc";
    if (contains(found.dli_fname, "libc10")) return "PyTorch";
  }
  const std::string line = author_line(calls, count);
  return line.empty() ? function : function + " at " + line;
}

Around in_heap(uintptr_t address, uintptr_t low, size_t bytes) {
  void* calls[48];
  int thread = 0;
  void* const at = reinterpret_cast<void*>(address);
  const auto allocated = int(__asan_get_alloc_stack(at, calls, 48, &thread));
  const std::string origin = "allocated by " + by(calls, allocated, "malloc");
  if (const auto freed = int(__asan_get_free_stack(at, calls, 48, &thread))) {
    const std::string end = ", freed by " + by(calls, freed, "free");
    return {"of memory that was freed", bytes_of(bytes) + end + ", " + origin,
            "free it after the last launch that uses it"};
  }
  Around found = beside(address, low, bytes, "memory");
  found.details += ", " + origin;
  return found;
}

/// The variable nearest to an offset in a function's frame, from the sanitizer's text.
Around in_frame(uintptr_t address, uintptr_t frame, const char* text) {
  char* rest = nullptr;
  const long count = std::strtol(text, &rest, 10);
  Around nearest{"of a function's variables", {}};
  uintptr_t least = ~uintptr_t{0};
  for (long i = 0; i < count; ++i) {
    const uintptr_t low = frame + std::strtoul(rest, &rest, 10);
    const size_t bytes = std::strtoul(rest, &rest, 10);
    const size_t length = std::strtoul(rest, &rest, 10);
    const std::string full(rest + 1, length);
    rest += 1 + length;
    const std::string name = full.substr(0, full.find(':'));
    const uintptr_t end = low + bytes;
    const uintptr_t away = address < low ? low - address : address < end ? 0 : address - end + 1;
    if (away >= least) continue;
    least = away;
    nearest = beside(address, low, bytes, "local" + quoted(name.c_str()));
  }
  return nearest;
}

bool is_stack_mark(uint8_t mark) { return mark >= 0xf1 && mark <= 0xf8; }

/// Walks down from an address to the head of the function's frame, by the shadow memory.
bool on_stack(uintptr_t address, Around& found) {
  size_t scale = 0, offset = 0;
  __asan_get_shadow_mapping(&scale, &offset);
  const auto mark = [&](uintptr_t at) {
    return *reinterpret_cast<const uint8_t*>((at >> 3) + offset);
  };
  if (!is_stack_mark(mark(address))) return false;
  const uintptr_t start = address & ~uintptr_t{7};
  for (uintptr_t at = start; start - at < most_of_a_frame; at -= 8) {
    if (mark(at) != 0xf1) continue;
    const auto* head = reinterpret_cast<const uint64_t*>(at);
    if (head[0] != frame_begins) continue;
    found = in_frame(address, at, reinterpret_cast<const char*>(head[1]));
    return true;
  }
  return false;
}

}  // namespace

Around around(uintptr_t address) {
  if (const Variable* shared = shared_variable_near(address)) {
    // Memory that is not a variable has a description for a name.
    const bool described = contains(shared->name, " ");
    const std::string name = described ? shared->name : "shared memory" + quoted(shared->name);
    return beside(address, shared->low, shared->bytes, name);
  }
  Around found;
  if (on_stack(address, found)) return found;
  char name[128] = "";
  void* low = nullptr;
  size_t bytes = 0;
  const char* kind =
      __asan_locate_address(reinterpret_cast<void*>(address), name, sizeof name, &low, &bytes);
  const auto start = reinterpret_cast<uintptr_t>(low);
  const bool is_near = address + nearby >= start && address <= start + bytes + nearby;
  if (contains(kind, "heap") && is_near) return in_heap(address, start, bytes);
  if (contains(kind, "global") && is_near)
    return beside(address, start, bytes, "variable" + quoted(name));
  return {"of no variable and no allocation", {}};
}

std::string author_line(void* const* returns, int count) {
  std::vector<const void*> code;
  for (int i = 0; i < count; ++i) {
    Dl_info found;
    const bool known = ::dladdr(returns[i], &found);
    if (known && !contains(found.dli_fname, "libasan")) code.push_back(returns[i]);
  }
  for (const std::string& line : lines_of(code)) {
    if (!line.empty()) return line;
  }
  return "";
}

}  // namespace cuda_on_cpu::memory
#endif
