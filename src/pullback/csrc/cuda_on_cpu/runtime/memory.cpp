// The faults of a launch, from the first one found to the report at its end.

#ifdef CUDA_ON_CPU_MEMORY
#include "memory.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "../core.h"
#include "findings.h"
#include "line_of.h"
#include "worker.h"

namespace cuda_on_cpu::memory {
namespace {

constexpr const char* rule = "cuda-memory [PB223]";
// Beyond this many we abandon the block, since we no longer keep what would have to be restored.
constexpr size_t most_kept = 1 << 16;
constexpr int most_lines = 4;

/// The previous contents of a place that a fault wrote to.
struct Kept {
  uintptr_t address;
  size_t bytes;
  unsigned char old[16];
};

/// The faults of all running launches: one, unless the host has several threads.
struct Faults {
  std::mutex one_at_a_time;
  int launches = 0;
  std::string first;  // its whole text, without the rows that are only known at the end
  const char* help = nullptr;
  std::map<const void*, size_t> others;  // code -> how often
  std::vector<Kept> kept;
} faults;

/// memcpy that AddressSanitizer does not check.
void copy(void* to, const void* from, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    static_cast<volatile char*>(to)[i] = static_cast<const volatile char*>(from)[i];
  }
}

/// Saves the bytes that a write out of bounds is about to destroy: AddressSanitizer's own data is
/// before each allocation, and a later free() would fail on it.
void keep(const Fault& fault) {
  if (!fault.write || fault.bytes > sizeof Kept{}.old) return;
  Kept kept{fault.address, fault.bytes, {}};
  copy(kept.old, reinterpret_cast<void*>(fault.address), fault.bytes);
  faults.kept.push_back(kept);
}

void put_back() {
  std::reverse(faults.kept.begin(), faults.kept.end());
  for (const Kept& kept : faults.kept) {
    void* const at = reinterpret_cast<void*>(kept.address);
    if (__asan_address_is_poisoned(at)) copy(at, kept.old, kept.bytes);
  }
  faults.kept.clear();
}

std::string place_of(const Fault& fault) {
  return fault.place.empty() ? line_of(fault.code) : fault.place;
}

/// A row of a finding, its value in one column with those of the others.
std::string row(const char* key, const std::string& value) {
  if (value.empty()) return {};
  const std::string name = std::string(key) + ":";
  return "\n    " + name + std::string(8 - name.size(), ' ') + value;
}

/// The message, and the rows "at" and "memory"; sets `help`.
std::string text_of(const Fault& fault, const std::string& who, const char*& help) {
  std::string what = fault.what;
  const Around found = fault.address ? around(fault.address) : Around{};
  help = found.help && what.empty() ? found.help : fault.help;
  if (what.empty()) {
    what = (fault.write ? "writes " : "reads ") + std::to_string(fault.bytes) +
           (fault.bytes == 1 ? " byte " : " bytes ") + found.relation;
  }
  return who + " " + what + row("at", place_of(fault)) + row("memory", found.details);
}

/// "add: thread (1,0,0) of block (2,0,0)"
std::string thread_here() {
  char text[120];
  std::snprintf(text, sizeof text, ": thread (%u,%u,%u) of block (%u,%u,%u)", threadIdx.x,
                threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z);
  return running->job->launch.name + std::string(text);
}

/// "127 other accesses, at add.cu:5, add.cu:9"
std::string others() {
  size_t count = 0;
  std::vector<std::string> lines;
  for (const auto& [code, times] : faults.others) {
    count += times;
    if (lines.size() >= most_lines) continue;
    const std::string line = line_of(code);
    if (!line.empty() && std::find(lines.begin(), lines.end(), line) == lines.end()) {
      lines.push_back(line);
    }
  }
  if (count == 0) return {};
  std::string text = std::to_string(count) + (count == 1 ? " other access" : " other accesses");
  for (size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? ", at " : ", ") + lines[i];
  return text;
}

/// Faults of the host are reported at once, each place once: nothing there could throw.
void report_host(const Fault& fault) {
  static std::map<const void*, size_t> seen;
  if (seen[fault.code]++ > 0 || (fault.place.empty() && line_of(fault.code).empty())) return;
  const char* help = nullptr;
  const std::string text = std::string(rule) + ": " + text_of(fault, "the host", help);
  findings::show((text + row("help", help)).c_str());
}

void clear() {
  put_back();
  faults.first.clear();
  faults.others.clear();
}

}  // namespace

void launch_begins() {
  const std::lock_guard lock(faults.one_at_a_time);
  if (faults.launches++ == 0) clear();
}

void launch_ends() {
  std::string text;
  {
    const std::lock_guard lock(faults.one_at_a_time);
    --faults.launches;
    if (!faults.first.empty())
      text = faults.first + row("more", others()) + row("help", faults.help);
    clear();
  }
  if (!text.empty()) stop(rule, "%s", text.c_str());
}

// A failure after a fault is taken to follow from it.
void launch_fails() { launch_ends(); }

void note(const Fault& fault) {
  // If the checks of indices and of addresses both see a fault, it counts once.
  struct Last {
    uint3 thread, block;
    uintptr_t code;
  };
  static thread_local Last last;
  bool too_many = false;
  {
    const std::lock_guard lock(faults.one_at_a_time);
    if (!in_kernel()) return report_host(fault);
    keep(fault);
    const Last now{threadIdx, blockIdx, reinterpret_cast<uintptr_t>(fault.code)};
    const bool same_thread = std::memcmp(&now, &last, offsetof(Last, code)) == 0;
    if (same_thread && now.code - last.code < 64 && now.code != last.code) return;
    last = now;
    if (faults.first.empty()) {
      faults.first = text_of(fault, thread_here(), faults.help);
    } else {
      ++faults.others[fault.code];
    }
    too_many = faults.kept.size() > most_kept;
  }
  if (too_many)
    stop(rule, "%s: more than %zu writes out of bounds", faults.first.c_str(), most_kept);
}

}  // namespace cuda_on_cpu::memory
#endif
