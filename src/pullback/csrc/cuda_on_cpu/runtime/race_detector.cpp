#ifdef CUDA_ON_CPU_RACE

#include "race_detector.h"

#include <algorithm>
#include <cstring>

namespace cuda_on_cpu::race {
namespace {

/// Addresses below this belong to nobody.
constexpr uintptr_t null_page = 65536;

/// Calls f(page, index of the cell, mask of the bytes in it) for memory that is not private.
template <class F>
inline void each_cell(Shadow& shadow, uintptr_t address, size_t bytes, F f) {
  const uintptr_t end = address + bytes;
  while (address < end) {
    const unsigned first = address % 8;
    const unsigned count = static_cast<unsigned>(std::min<uintptr_t>(8 - first, end - address));
    if (Page* page = shadow.page(address)) {
      f(*page, address % page_bytes / 8, (0xFFu >> (8 - count)) << first);
    }
    address += count;
  }
}

uintptr_t cell_address(const Page& page, size_t index) {
  return page.key / 2 * page_bytes + index * 8;
}
bool is_strong(const Access& access) { return access.kind & (is_atomic | is_volatile); }
bool is_shared(const Page& page) { return page.key & 1; }

}  // namespace

__thread Detector* running = nullptr;

Detector& detector() {
  // Never destroyed: a kernel may be launched by an author's static object.
  static auto* only = new Detector;
  return *only;
}

void Detector::launch_begins(const char* kernel, const char* file, int line, uint3 grid,
                             uint3 block) {
  threads_ = block.x * block.y * block.z;
  pending_.bytes = 0;
  looking_ = nullptr;
  too_large_ = false;
  clocks_.launch_begins();
  shadow_.launch_begins();
  findings_.launch_begins(kernel, file, line, grid, block);
}

Report Detector::launch_ends() {
  settle();
  return findings_.report(shadow_.forgot() || too_large_);
}

void Detector::block_begins(uint64_t block, Span shared) {
  settle();
  too_large_ = clocks_.block() + 1 >= most_blocks;
  if (too_large_) return;
  clocks_.block_begins(threads_);
  shadow_.block_begins(shared);
  findings_.block_begins(block);
}

void Detector::thread_runs(unsigned thread) {
  settle();
  thread_ = thread;
  atomic_ = 0;
  running = too_large_ ? nullptr : this;
}

void Detector::no_thread_runs() {
  settle();
  running = nullptr;
}

void Detector::thread_ends(unsigned thread) {
  no_thread_runs();
  clocks_.thread_ends(thread);
}

void Detector::barrier() {
  settle();
  clocks_.barrier();
}

void Detector::collective(unsigned warp, uint32_t lanes) {
  settle();
  clocks_.collective(warp, lanes);
}

void Detector::fence() {
  settle();
  clocks_.fence(thread_);
  findings_.add_announcement();
}

Access Detector::access(unsigned kind, unsigned bytes, const void* pc) const {
  Access made;
  made.pc = reinterpret_cast<uintptr_t>(pc);
  made.thread = thread_;
  made.kind = kind;
  made.block = clocks_.block();
  made.bytes = bytes;
  made.clock = clocks_.clock(thread_);
  return made;
}

void Detector::read(uintptr_t address, size_t bytes, unsigned kind, const void* pc) {
  // The first read after a write may belong to the same assignment, which runs after both calls.
  const bool overlaps =
      address < pending_.address + pending_.bytes && pending_.address < address + bytes;
  if (pending_.bytes && (overlaps || pending_.reads++)) settle_pending();
  if (kind & (is_volatile | is_atomic)) clocks_.acquire(thread_, address);
  Access now = access(kind, 0, pc);
  bool written = false;
  each_cell(shadow_, address, bytes, [&](Page& page, size_t index, unsigned mask) {
    written |= !is_shared(page) || (page.written[index] & mask);
    now.bytes = mask;
    add_read(page.cells[index], now, cell_address(page, index), is_shared(page));
  });
  if (!written && shadow_.is_shared(address)) findings_.add_unwritten(now, address, bytes);
}

void Detector::write(uintptr_t address, size_t bytes, unsigned kind, const void* pc) {
  settle();
  if (address < null_page) return;  // the author's code is to fault, not this
  if (kind & is_volatile) clocks_.release(thread_, address);
  if (bytes <= sizeof pending_.before) {
    looking_ = pc;
    std::memcpy(pending_.before, reinterpret_cast<const void*>(address), bytes);
    looking_ = nullptr;
  }
  pending_.address = address;
  pending_.bytes = bytes;
  pending_.kind = kind;
  pending_.reads = 0;
  pending_.pc = pc;
}

void Detector::settle_pending() {
  const Pending& done = pending_;
  const bool same =
      done.bytes <= sizeof done.before &&
      std::memcmp(done.before, reinterpret_cast<const void*>(done.address), done.bytes) == 0;
  add_writes(done.address, done.bytes, done.kind, done.pc, same);
  pending_.bytes = 0;
}

void Detector::wrote(uintptr_t address, size_t bytes, const void* pc, bool same) {
  settle();
  add_writes(address, bytes, is_write, pc, same);
}

void Detector::add_writes(uintptr_t address, size_t bytes, unsigned kind, const void* pc,
                          bool same) {
  Access now = access(kind, 0, pc);
  each_cell(shadow_, address, bytes, [&](Page& page, size_t index, unsigned mask) {
    const bool fresh = is_shared(page) && (page.written[index] & mask) != mask;
    page.written[index] |= mask;
    now.bytes = mask;
    now.kind = kind | is_write;
    if (same && !fresh) now.kind |= is_silent;
    Cell& cell = page.cells[index];
    if (now.kind & is_silent) {
      remember(cell, now);
    } else {
      add_write(cell, now, cell_address(page, index), is_shared(page));
    }
  });
}

void Detector::atomic(uintptr_t address, size_t bytes, const void* pc) {
  settle();
  atomic_ = address;
  findings_.add_announcement();
  clocks_.acquire(thread_, address);
  clocks_.release(thread_, address);
  bool written = false;
  each_cell(shadow_, address, bytes, [&](Page& page, size_t index, unsigned mask) {
    written |= !is_shared(page) || (page.written[index] & mask);
  });
  if (!written && shadow_.is_shared(address)) {
    findings_.add_unwritten(access(is_atomic | is_write, 0, pc), address, bytes);
  }
  add_writes(address, bytes, is_atomic, pc, false);
}

void Detector::own_atomic(uintptr_t address, size_t bytes, unsigned kind, int order,
                          const void* pc) {
  if (atomic_ == address) return;  // within one of CUDA's functions, which was told by atomic()
  const bool releases = order >= __ATOMIC_RELEASE;
  if (kind == is_read) {
    read(address, bytes, is_atomic, pc);
  } else {
    if (releases) fence();
    atomic(address, bytes, pc);
    atomic_ = 0;
  }
}

bool Detector::races(const Access& then, const Access& now, bool shared) const {
  if (then.by_same_thread(now)) return false;
  if (then.kind & now.kind & is_atomic) return false;
  if (is_strong(then) && is_strong(now)) {
    const bool in_step = shared && (then.kind & now.kind & is_volatile) && then.in_same_warp(now) &&
                         !clocks_.fenced_since_barrier(static_cast<unsigned>(then.thread)) &&
                         !clocks_.fenced_since_barrier(thread_);
    if (!in_step) return false;
  }
  return !clocks_.before(then, thread_);
}

/// Whether the thread may rely on the value although another one writes it too: it, or a thread
/// ordered before it, has written that same value.
bool Detector::agreed(const Cell& cell, const Access& now) const {
  unsigned missing = now.bytes;
  for (const Access& then : cell.accesses) {
    if ((then.kind & is_silent) && clocks_.before(then, thread_)) missing &= ~then.bytes;
  }
  return !missing;
}

void Detector::add_read(Cell& cell, const Access& now, uintptr_t address, bool shared) {
  const Access* racing = nullptr;
  for (const Access& then : cell.accesses) {
    if (!(then.bytes & now.bytes)) continue;
    if (then.kind == now.kind && then.by_same_thread(now) && then.clock == now.clock &&
        !(now.bytes & ~then.bytes)) {
      return;  // it has read this since the last write
    }
    if (then.changes() && races(then, now, shared)) racing = &then;
  }
  if (racing && !agreed(cell, now)) findings_.add(*racing, now, address, shared);
  remember(cell, now);
}

void Detector::add_write(Cell& cell, const Access& now, uintptr_t address, bool shared) {
  for (Access& then : cell.accesses) {
    if (!(then.bytes & now.bytes)) continue;
    if (races(then, now, shared)) findings_.add(then, now, address, shared);
    if ((now.kind & is_atomic) && then.kind == is_read && then.by_same_thread(now)) {
      findings_.add_hint(then.pc);
    }
    // Whatever races with `then` from now on races with `now` as well, so `now` can replace it;
    // except if `now` is atomic and `then` is not.
    if (is_strong(then) || !is_strong(now)) then.bytes &= ~now.bytes;
  }
  remember(cell, now);
}

/// Stores an access, in place of one that happened before it or in an empty place.
void Detector::remember(Cell& cell, const Access& now) {
  Access* place = nullptr;
  for (Access& then : cell.accesses) {
    if (!then.bytes) {
      place = &then;
    } else if (then.kind == now.kind && !then.changes() && !(then.bytes & ~now.bytes) &&
               clocks_.before(then, thread_)) {
      place = &then;
      break;
    }
  }
  for (unsigned i = 0; !place && i < 8; ++i) {
    Access& then = cell.accesses[victim_++ % 8];
    if (!then.changes()) place = &then;
  }
  if (!place && now.changes()) place = &cell.accesses[victim_++ % 8];
  if (place) *place = now;
}

}  // namespace cuda_on_cpu::race

#endif
