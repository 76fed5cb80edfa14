#ifdef CUDA_ON_CPU_RACE

#include "race_shadow.h"

#include <algorithm>
#include <cstring>

namespace cuda_on_cpu::race {

void Shadow::launch_begins() {
  launch_ = block_ = ++age_;
  shared_ = {};
  private_in_launch_.clear();
  forgot_ = false;
  if (pages_.size() > most_pages_kept) {
    // One large launch should not hold half a gigabyte for ever.
    std::fill(recent_, recent_ + recent, Recent());
    oldest_.clear();
    pages_.clear();
  }
}

void Shadow::block_begins(Span shared) {
  block_ = ++age_;
  shared_ = shared;
}

void Shadow::add_private(Span memory) { add_private(private_, memory); }
void Shadow::add_private_in_launch(Span memory) { add_private(private_in_launch_, memory); }

void Shadow::add_private(std::vector<Span>& to, Span memory) {
  for (const Span& known : to) {
    if (known.low <= memory.low && memory.high <= known.high) return;
  }
  to.push_back(memory);
  for (auto& [key, page] : pages_) {
    const uintptr_t start = key / 2 * page_bytes;
    if (start < memory.high && start + page_bytes > memory.low) page->privacy = privacy(key);
  }
}

Page::Privacy Shadow::privacy(uint64_t key) const {
  const uintptr_t start = key / 2 * page_bytes, end = start + page_bytes;
  bool some = false;
  for (const auto* spans : {&private_, &private_in_launch_}) {
    for (const Span& span : *spans) {
      if (span.low <= start && end <= span.high) return Page::all;
      some |= span.low < end && start < span.high;
    }
  }
  return some ? Page::some : Page::none;
}

bool Shadow::is_private(uintptr_t address) const {
  const auto has = [&](const Span& span) { return span.has(address); };
  return std::any_of(private_.begin(), private_.end(), has) ||
         std::any_of(private_in_launch_.begin(), private_in_launch_.end(), has);
}

Page* Shadow::find(uint64_t key) {
  const auto found = pages_.find(key);
  Page* page = found == pages_.end() ? new_page(key) : found->second.get();
  const uint64_t age = key & 1 ? block_ : launch_;
  if (page->age != age) {
    page->age = age;
    page->privacy = privacy(key);
    std::memset(page->written, 0, sizeof page->written);
    std::memset(static_cast<void*>(page->cells), 0, sizeof page->cells);
  }
  recent_[key % recent] = {key, page};
  return page;
}

Page* Shadow::new_page(uint64_t key) {
  std::unique_ptr<Page> page;
  if (pages_.size() < most_pages) {
    page = std::make_unique<Page>();
  } else {
    const uint64_t old = oldest_.front();
    oldest_.pop_front();
    page = std::move(pages_.at(old));
    pages_.erase(old);
    forgot_ |= page->age >= launch_;
    if (recent_[old % recent].key == old) recent_[old % recent] = {};
  }
  page->key = key;
  page->age = 0;
  oldest_.push_back(key);
  return (pages_[key] = std::move(page)).get();
}

void Shadow::forget(uintptr_t address, size_t bytes) {
  const uintptr_t end = address + bytes;
  for (uintptr_t at = address & ~uintptr_t{7}; at < end; at += 8) {
    if (Page* here = page(at)) here->cells[at % page_bytes / 8] = {};
  }
}

}  // namespace cuda_on_cpu::race

#endif
