/// PyTorch's CPU memory with a guard zone on both sides, filled before it is handed out.
///
/// Every tensor that is made meanwhile is in such memory, whoever makes it: PyTorch, pullback's
/// runtime, an extension. A write beside a tensor lands in a zone and harms nothing.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace {

/// A write beside a block; `verify/tracing/guard.py` reads these.
struct Trespass {
  const void* block;
  int64_t bytes;  // of the block
  int64_t first;  // the first byte that was written, counted from the block: negative before it
  int64_t last;
};

struct Block {
  int64_t bytes;
  uint8_t zone;
};

using Blocks = std::unordered_map<const uint8_t*, Block>;

// A page: a kernel that works in blocks of threads misses by hundreds of elements, not by one.
constexpr int64_t zone_bytes = 4096;

struct State {
  std::mutex mutex;
  c10::Allocator* ordinary = nullptr;
  // Read without the lock: a child of `fork` may inherit it locked by a thread that it does not
  // have.
  std::atomic<bool> guards = false;
  std::atomic<int64_t> alive = 0;
  Blocks blocks;                     // since the last `pullback_guard`
  Blocks earlier;                    // may be many, so nobody searches them
  std::vector<Trespass> trespasses;  // of blocks that have been freed
  int fill = -1;                     // a byte; negative: memory is left as it is
  uint8_t zone = 0;
};

/// Never destroyed: tensors may be freed after everything else.
State& state() {
  static State& made = *new State;
  return made;
}

void look_at(const uint8_t* zone, const uint8_t* begin, const Block& block,
             std::vector<Trespass>& found) {
  // Does each byte equal the one before it? Nearly always, and a memcmp is quick.
  if (*zone == block.zone && !std::memcmp(zone, zone + 1, zone_bytes - 1)) return;
  const uint8_t *first = zone, *last = zone + zone_bytes - 1;
  while (*first == block.zone) ++first;
  while (*last == block.zone) --last;
  found.push_back({begin, block.bytes, first - begin, last - begin});
}

void look(const uint8_t* begin, const Block& block, std::vector<Trespass>& found) {
  look_at(begin - zone_bytes, begin, block, found);
  look_at(begin + block.bytes, begin, block, found);
}

/// Frees memory of either kind: unguarded memory may be freed while tensors are guarded, and the
/// other way round.
void release(void* memory) {
  auto* begin = static_cast<uint8_t*>(memory);
  State& now = state();
  if (!now.alive) return now.ordinary->raw_deleter()(memory);
  {
    const std::lock_guard lock(now.mutex);
    if (const auto found = now.blocks.find(begin); found != now.blocks.end()) {
      look(begin, found->second, now.trespasses);
      now.blocks.erase(found);
    } else if (!now.earlier.erase(begin)) {
      return now.ordinary->raw_deleter()(memory);
    }
    --now.alive;
  }
  std::free(begin - zone_bytes);
}

class Guarded final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    State& now = state();
    if (!now.guards || !bytes) return now.ordinary->allocate(bytes);
    const std::lock_guard lock(now.mutex);
    void* memory = nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, !posix_memalign(&memory, 64, bytes + 2 * zone_bytes),
                     "no memory for ", bytes, " bytes and what guards them");
    auto* begin = static_cast<uint8_t*>(memory) + zone_bytes;
    std::memset(memory, now.zone, zone_bytes);
    std::memset(begin + bytes, now.zone, zone_bytes);
    if (now.fill >= 0) std::memset(begin, now.fill, bytes);
    ++now.alive;
    now.blocks[begin] = {static_cast<int64_t>(bytes), now.zone};
    return {begin, begin, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

#define PULLBACK_EXPORT extern "C" __attribute__((visibility("default")))

/// Guard all memory that is handed out from now on, and forget the trespasses so far.
///
/// Memory is filled with the byte `fill`, or left as it is if that is negative; zones with `zone`.
PULLBACK_EXPORT void pullback_guard(int fill, uint8_t zone) {
  static Guarded guarded;
  State& now = state();
  const std::lock_guard lock(now.mutex);
  now.guards = true;
  now.fill = fill;
  now.zone = zone;
  now.earlier.merge(now.blocks);
  now.trespasses.clear();
  if (now.ordinary) return;
  now.ordinary = c10::GetCPUAllocator();
  // It stays: whoever frees memory through PyTorch's allocator uses the one that is set then.
  c10::SetCPUAllocator(&guarded, /*priority=*/255);
}

PULLBACK_EXPORT void pullback_unguard() { state().guards = false; }

/// Copies the writes beside blocks since the last `pullback_guard`; returns how many there are.
PULLBACK_EXPORT int64_t pullback_trespasses(Trespass* into, int64_t most) {
  State& now = state();
  const std::lock_guard lock(now.mutex);
  std::vector<Trespass> found = now.trespasses;
  for (const auto& [begin, block] : now.blocks) look(begin, block, found);
  std::copy_n(found.begin(), std::min<int64_t>(most, found.size()), into);
  return static_cast<int64_t>(found.size());
}
