#ifdef CUDA_ON_CPU_RACE

#include "race_clocks.h"

#include <algorithm>

namespace cuda_on_cpu::race {
namespace {

Acquired join(const Acquired& a, const Acquired& b) {
  if (a == b || !b) return a;
  if (!a) return b;
  auto all = std::make_shared<std::vector<Prefix>>();
  bool more = false;  // than `a` has
  auto i = a->begin(), j = b->begin();
  while (i != a->end() || j != b->end()) {
    if (j == b->end() || (i != a->end() && i->address < j->address)) {
      all->push_back(*i++);
    } else if (i == a->end() || j->address < i->address) {
      all->push_back(*j++);
      more = true;
    } else {
      all->push_back(i->length < j->length ? *j : *i);
      more |= i->length < j->length;
      ++i, ++j;
    }
  }
  return more ? all : a;
}

/// Merges what threads of a block have fenced; `into` has the clocks of at least those threads.
void merge(Fenced& into, const Fenced& from) {
  into.barrier = std::max(into.barrier, from.barrier);
  for (size_t i = 0; i < from.clocks.size(); ++i) {
    uint32_t& clock = into.clocks[from.first - into.first + i];
    clock = std::max(clock, from.clocks[i]);
  }
  into.acquired = join(into.acquired, from.acquired);
}

/// `part` may be null.
Publishable merged(const Publishable& all, const Publishable& part) {
  if (all == part || !part) return all;
  if (!all) return part;
  auto both = std::make_shared<Fenced>(*all);
  merge(*both, *part);
  return both;
}

}  // namespace

void Releases::add(const Publishable& fenced) {
  if (!all_.empty() && all_.back() == fenced) return;
  of_block_[fenced->block].push_back(all_.size());
  all_.push_back(fenced);
  acquired_ = join(acquired_, fenced->acquired);
}

bool Releases::cover(const Access& access, size_t length) const {
  const auto found = of_block_.find(access.block);
  if (found == of_block_.end()) return false;
  const auto& places = found->second;
  return std::any_of(places.rbegin(), places.rend(),
                     [&](size_t place) { return place < length && all_[place]->covers(access); });
}

void Clocks::launch_begins() {
  block_ = blocks_ = 0;
  threads_.clear();
  releases_.clear();
}

void Clocks::block_begins(unsigned threads) {
  block_ = ++blocks_;
  barrier_ = 1;
  threads_.assign((threads + 31) / 32 * 32, {});
  fenced_ = nullptr;
  acquired_ = nullptr;
  news_ = false;
}

void Clocks::barrier() {
  uint32_t latest = barrier_;
  for (const Thread& thread : threads_) latest = std::max(latest, thread.clock);
  barrier_ = latest + 1;
  for (Thread& thread : threads_) thread.clock = barrier_;
  if (!news_) return;
  news_ = false;
  std::shared_ptr<Fenced> fenced;
  for (Thread& thread : threads_) {
    if (thread.fenced) {
      if (!fenced) {
        const std::vector<uint32_t> none(threads_.size());
        fenced = std::make_shared<Fenced>(Fenced{block_, 0, 0, none, nullptr});
      }
      merge(*fenced, *thread.fenced);
    }
    acquired_ = join(acquired_, thread.acquired);
    thread.fenced = nullptr;
    thread.acquired = nullptr;
  }
  // A fence after the last barrier covers everything that was fenced before it.
  if (fenced) fenced_ = fenced;
}

void Clocks::collective(unsigned warp, uint32_t lanes) {
  Thread* const threads = &threads_[size_t{warp} * 32];
  for (unsigned lane = 0; lane < 32; ++lane) lanes |= uint32_t{threads[lane].ended} << lane;
  uint32_t known[32] = {};
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    Thread& thread = threads[lane];
    thread.known[lane] = thread.clock++;
    for (unsigned i = 0; i < 32; ++i) known[i] = std::max(known[i], thread.known[i]);
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (lanes >> lane & 1) std::copy(known, known + 32, threads[lane].known);
  }
  if (news_) share_knowledge(threads, lanes);
}

void Clocks::share_knowledge(Thread* warp, uint32_t lanes) {
  Publishable fenced;
  Acquired acquired;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    fenced = merged(fenced, warp[lane].fenced);
    acquired = join(acquired, warp[lane].acquired);
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    warp[lane].fenced = fenced;
    warp[lane].acquired = acquired;
  }
}

void Clocks::thread_ends(unsigned thread) { threads_[thread].ended = true; }

void Clocks::fence(unsigned thread) {
  Thread& self = threads_[thread];
  self.known[thread % 32] = self.fence = self.clock++;
  self.fenced = std::make_shared<Fenced>(Fenced{
      block_, barrier_, thread / 32 * 32, {self.known, self.known + 32}, acquired_by(thread)});
  news_ = true;
}

void Clocks::release(unsigned thread, uintptr_t address) {
  const Publishable& fenced = fenced_by(thread);
  Thread& self = threads_[thread];
  if (!fenced || (self.published == fenced.get() && self.published_at == address)) return;
  self.published = fenced.get();
  self.published_at = address;
  releases_[address].add(fenced);
}

void Clocks::acquire(unsigned thread, uintptr_t address) {
  if (releases_.empty()) return;
  const auto found = releases_.find(address);
  if (found == releases_.end()) return;
  const Releases& releases = found->second;
  const Acquired& known = acquired_by(thread);
  if (known && std::any_of(known->begin(), known->end(), [&](const Prefix& prefix) {
        return prefix.address == address && prefix.length == releases.count();
      })) {
    return;
  }
  const auto here = std::make_shared<std::vector<Prefix>>(1, Prefix{address, releases.count()});
  threads_[thread].acquired = join(join(known, here), releases.acquired());
  news_ = true;
}

bool Clocks::was_acquired(const Access& access, const Acquired& acquired) const {
  if (!acquired) return false;
  return std::any_of(acquired->begin(), acquired->end(), [&](const Prefix& prefix) {
    return releases_.at(prefix.address).cover(access, prefix.length);
  });
}

}  // namespace cuda_on_cpu::race

#endif
