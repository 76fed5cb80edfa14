/// The shadow memory of the race detector: the last accesses to every eight bytes of the author's.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "race_access.h"

namespace cuda_on_cpu::race {

/// The accesses to eight bytes: writes until a later one is ordered after them, and as many reads
/// as there is room for.
struct Cell {
  Access accesses[8];
};

constexpr unsigned page_bytes = 1024;

/// A span of memory, from `low` up to `high`.
struct Span {
  uintptr_t low = 0, high = 0;
  bool has(uintptr_t address) const { return address - low < high - low; }
};

/// The cells of 1 KiB of memory. Shared memory has pages of its own, since each block forgets it.
struct Page {
  enum Privacy : uint8_t { none, some, all };

  uint64_t key;
  uint64_t age;  // the launch, or block, in which it was last used
  Privacy privacy;
  uint8_t written[page_bytes / 8];  // one bit a byte, for shared memory
  Cell cells[page_bytes / 8];
};

class Shadow {
 public:
  void launch_begins();
  void block_begins(Span shared);
  /// Adds private memory: for ever, and for this launch.
  void add_private(Span memory);
  void add_private_in_launch(Span memory);

  bool is_shared(uintptr_t address) const { return shared_.has(address); }
  /// The page of an address, empty if it is of an earlier launch or block; null where private.
  Page* page(uintptr_t address) {
    const uint64_t key = address / page_bytes * 2 + is_shared(address);
    Page* page = recent_[key % recent].page;
    if (recent_[key % recent].key != key || page->age != (key & 1 ? block_ : launch_)) {
      page = find(key);
    }
    if (page->privacy == Page::none) return page;
    return page->privacy == Page::all || is_private(address) ? nullptr : page;
  }
  /// Forgets the accesses to some memory.
  void forget(uintptr_t address, size_t bytes);
  /// Whether accesses of this launch had to be forgotten.
  bool forgot() const { return forgot_; }

 private:
  Page* find(uint64_t key);
  Page* new_page(uint64_t key);
  Page::Privacy privacy(uint64_t key) const;
  bool is_private(uintptr_t address) const;
  void add_private(std::vector<Span>& to, Span memory);

  // Half a gigabyte, for 32 MiB of the author's memory.
  static constexpr size_t most_pages = (32 << 20) / page_bytes, most_pages_kept = 4096;
  static constexpr size_t recent = 1024;

  struct Recent {
    uint64_t key = ~uint64_t{0};
    Page* page = nullptr;
  };
  Recent recent_[recent];
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  std::deque<uint64_t> oldest_;  // keys of pages_, in the order they were made
  Span shared_;
  std::vector<Span> private_, private_in_launch_;
  uint64_t age_ = 0, launch_ = 0, block_ = 0;
  bool forgot_ = false;
};

}  // namespace cuda_on_cpu::race
