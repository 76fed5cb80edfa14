#include "blocks.h"

#include "job.h"

#include <algorithm>
#include <numeric>

namespace cuda_on_cpu {

Blocks::Blocks(uint64_t count, Order order) : count(count), order_(order) {
  // If a block waits, no other worker could run the blocks after it that its worker has taken.
  const uint64_t fair = count / (64 * uint64_t(workers()));
  at_once_ = order == Order::forward ? std::clamp<uint64_t>(fair, 1, 16) : 1;
  if (order != Order::random || count < 2) return;
  const uint64_t seed = options().seed;
  offset_ = mix(seed) % count;
  stride_ = mix(seed + 1) % count | 1;
  while (std::gcd(stride_, count) != 1) stride_ += 2;
  // Euclid's algorithm.
  __int128 a = __int128(stride_ % count), b = __int128(count), x = 1, y = 0;
  while (b) {
    const __int128 quotient = a / b;
    std::swap(a -= quotient * b, b);
    std::swap(x -= quotient * y, y);
  }
  back_ = uint64_t((x % __int128(count) + __int128(count)) % __int128(count));
}

uint64_t Blocks::index_at(uint64_t place) const {
  if (order_ == Order::forward) return place;
  if (order_ == Order::reverse) return count - 1 - place;
  return uint64_t(((unsigned __int128)place * stride_ + offset_) % count);
}

uint64_t Blocks::place_of(uint64_t index) const {
  if (order_ == Order::forward) return index;
  if (order_ == Order::reverse) return count - 1 - index;
  return uint64_t((unsigned __int128)(index + count - offset_) * back_ % count);
}

void Blocks::skip_early() {
  while (!early_.empty() && early_.erase(next_)) ++next_;
}

Range Blocks::take() {
  const std::lock_guard lock(mutex_);
  if (!returned_.empty()) {
    const Range range = returned_.back();
    returned_.pop_back();
    return range;
  }
  const Range range{next_, std::min(next_ + at_once_, count)};
  next_ = range.end;
  skip_early();
  return range;
}

Range Blocks::take_lowest() {
  if (order_ == Order::forward) return take();
  const std::lock_guard lock(mutex_);
  for (; lowest_ < count; ++lowest_) {
    const uint64_t place = place_of(lowest_);
    if (has_begun(place)) continue;
    early_.insert(place);
    skip_early();
    return {place, place + 1};
  }
  return {};
}

void Blocks::give_back(Range range) {
  if (range.is_empty()) return;
  const std::lock_guard lock(mutex_);
  const auto after = [](const Range& a, const Range& b) { return a.next > b.next; };
  returned_.insert(std::upper_bound(returned_.begin(), returned_.end(), range, after), range);
}

bool Blocks::is_empty() {
  const std::lock_guard lock(mutex_);
  return next_ >= count && returned_.empty();
}

}  // namespace cuda_on_cpu
