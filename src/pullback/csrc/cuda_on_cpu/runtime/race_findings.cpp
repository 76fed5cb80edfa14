#ifdef CUDA_ON_CPU_RACE

#include "race_findings.h"

#include <algorithm>

namespace cuda_on_cpu::race {
namespace {

// A kernel with more races is still reported.
constexpr size_t most_races = 1000;

const Name* find(const std::vector<Name>& names, uintptr_t address) {
  for (const Name& each : names) {
    if (address - each.low < each.bytes) return &each;
  }
  return nullptr;
}

/// Adds a name, or replaces the one for the same address.
void set(std::vector<Name>& names, uintptr_t low, size_t bytes, const char* name) {
  for (Name& each : names) {
    if (each.low != low) continue;
    each.bytes = bytes;
    // Every thread of a block names the same variables: mostly there is nothing to do.
    if (each.name != name) each.name = name;
    return;
  }
  names.push_back({low, bytes, name});
}

Within distance(const Access& a, const Access& b) {
  return a.block != b.block ? Within::grid : a.in_same_warp(b) ? Within::warp : Within::block;
}

bool reads_at_hint(const Access& access, const std::unordered_set<uint64_t>& hints) {
  return access.kind == is_read && hints.count(access.pc);
}

}  // namespace

void Race::add(const Race& other) {
  const bool writes = both_write || other.both_write;
  const bool elements = several_elements || other.several_elements || other.address != address;
  if (other.within > within) *this = other;
  both_write = writes;
  several_elements = elements;
}

void Findings::launch_begins(const char* kernel, const char* file, int line, uint3 grid,
                             uint3 block) {
  kernel_ = kernel;
  launched_at_ = std::string(file) + ":" + std::to_string(line);
  grid_ = grid;
  block_ = block;
  blocks_.clear();
  races_.clear();
  unwritten_.clear();
  hints_.clear();
  shared_.clear();
  barriers_.clear();
  announcements_ = false;
}

void Findings::block_begins(uint64_t block) {
  blocks_.push_back(block);
  shared_.clear();
}

void Findings::add(const Access& then, const Access& now, uintptr_t cell, bool shared) {
  const unsigned both = then.bytes & now.bytes;
  const uintptr_t address = cell + static_cast<unsigned>(__builtin_ctz(both));
  const unsigned bytes = static_cast<unsigned>(__builtin_popcount(both));
  const std::pair<uint64_t, uint64_t> code = std::minmax<uint64_t>(then.pc, now.pc);
  const auto known = races_.find(code);
  if (known == races_.end() && races_.size() >= most_races) return;
  const bool both_write = then.kind & now.kind & is_write;
  Race race{then, now, address, bytes, {}, distance(then, now), both_write, false};
  if (known == races_.end() || race.within > known->second.within) {
    race.memory = name_of(address, bytes, shared);
  }
  if (known == races_.end()) {
    races_.emplace(code, std::move(race));
  } else {
    known->second.add(race);
  }
}

void Findings::add_unwritten(const Access& read, uintptr_t address, size_t bytes) {
  if (unwritten_.count(read.pc) || unwritten_.size() >= most_races) return;
  unwritten_[read.pc] = {read, name_of(address, bytes, true)};
}

void Findings::add_barrier(const char* file, int line) {
  // The newest first: threads mostly arrive one after the other at the same line.
  for (auto known = barriers_.rbegin(); known != barriers_.rend(); ++known) {
    if (known->file == file && known->line == line) return;
  }
  barriers_.push_back({file, line});
}

void Findings::name_shared(uintptr_t low, size_t bytes, const char* name) {
  set(shared_, low, bytes, name);
}
void Findings::name_argument(uintptr_t low, size_t bytes, const char* name) {
  if (name) {
    set(arguments_, low, bytes, name);
  } else {
    arguments_.clear();
  }
}

std::string Findings::name_of(uintptr_t address, size_t bytes, bool shared) const {
  std::string text;
  if (const Name* name = find(shared ? shared_ : arguments_, address)) {
    text = "'" + name->name + "' + " + std::to_string(address - name->low) + ", ";
  }
  text += shared ? "shared, " : "global, ";
  return text + std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

bool Findings::counts(const Race& race) const {
  const auto both = race.then.kind & race.now.kind, either = race.then.kind | race.now.kind;
  // A volatile flag that is a single variable, not an array, is legitimate within a warp too.
  if (both & is_volatile) return race.several_elements;
  if (!(either & is_atomic)) return true;
  return !reads_at_hint(race.then, hints_) && !reads_at_hint(race.now, hints_);
}

}  // namespace cuda_on_cpu::race

#endif
