#include <array>
#include <mutex>
#include <vector>

#include "../random.h"

namespace cuda_on_cpu {
namespace {

/// XORWOW's state without its counter: 160 bits, on which a step is linear.
using State = std::array<unsigned, 5>;
/// The image of each bit of a state.
using Matrix = std::array<State, 160>;

State times(const State& state, const Matrix& matrix) {
  State result{};
  for (size_t bit = 0; bit < 160; ++bit) {
    if (!(state[bit / 32] >> (bit % 32) & 1)) continue;
    for (size_t word = 0; word < 5; ++word) result[word] ^= matrix[bit][word];
  }
  return result;
}

Matrix one_step() {
  Matrix step{};
  for (size_t bit = 0; bit < 160; ++bit) {
    State v{};
    v[bit / 32] = 1U << bit % 32;
    const unsigned t = v[0] ^ v[0] >> 2;
    step[bit] = {v[1], v[2], v[3], v[4], (v[4] ^ v[4] << 4) ^ (t ^ t << 1)};
  }
  return step;
}

/// 2^k steps, for k up to 67 + 63; each is computed from the one before on first use.
const Matrix& steps(size_t k) {
  static std::mutex mutex;
  static auto* powers = new std::vector<Matrix>;
  const std::lock_guard<std::mutex> locked(mutex);
  powers->reserve(67 + 64);  // references that were handed out stay valid
  if (powers->empty()) powers->push_back(one_step());
  while (powers->size() <= k) {
    Matrix twice{};
    for (size_t bit = 0; bit < 160; ++bit) twice[bit] = times(powers->back()[bit], powers->back());
    powers->push_back(twice);
  }
  return (*powers)[k];
}

}  // namespace

void skip_xorwow(unsigned (&v)[5], unsigned long long sequences, unsigned long long count) {
  State state{v[0], v[1], v[2], v[3], v[4]};
  for (size_t k = 0; k < 64; ++k) {
    if (count >> k & 1) state = times(state, steps(k));
    if (sequences >> k & 1) state = times(state, steps(67 + k));
  }
  for (size_t i = 0; i < 5; ++i) v[i] = state[i];
}

}  // namespace cuda_on_cpu
