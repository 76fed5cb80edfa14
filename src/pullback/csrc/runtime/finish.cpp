/// How an output is made of what a formula's loop writes: summed, and its dimensions permuted.
#include "operator.h"

#include <algorithm>
#include <stdexcept>

namespace pullback {

namespace {

/// The texts of the core dimensions, which match those of the space with an output's.
std::vector<std::string> texts(const TensorSpec& tensor) {
  std::vector<std::string> texts;
  for (const Dimension& d : tensor.before) texts.push_back(d.text);
  for (const Dimension& d : tensor.after) texts.push_back(d.text);
  return texts;
}

}  // namespace

Ints Formula::summed(size_t k, size_t batch) const {
  const auto before = static_cast<int64_t>(space.before.size());
  const auto size = static_cast<int64_t>(batch);
  Ints summed;
  for (const int64_t core : finishes[k].sums) summed.push_back(core < before ? core : core + size);
  for (int64_t d = 0; finishes[k].sums_batch && d < size; ++d) summed.push_back(before + d);
  return summed;
}

Ints Formula::order(const Signature& signature, size_t k, size_t batch) const {
  const TensorSpec& output = signature.outputs[k];
  const Finish& how = finishes[k];
  const auto size = static_cast<int64_t>(output.batched ? batch : 0);
  const auto before = static_cast<int64_t>(how.before);
  Ints order;
  for (size_t core = 0; core <= how.places.size(); ++core) {
    if (core == output.before.size()) {
      for (int64_t d = 0; d < size; ++d) order.push_back(before + d);
    }
    if (core == how.places.size()) break;
    order.push_back(how.places[core] < before ? how.places[core] : how.places[core] + size);
  }
  return order;
}

void Formula::find_places(const Signature& signature) {
  for (size_t k = 0; k < finishes.size(); ++k) {
    Finish& how = finishes[k];
    const TensorSpec& output = signature.outputs[k];
    std::vector<std::string> left = texts(space);
    how.before = space.before.size();
    std::sort(how.sums.begin(), how.sums.end());
    for (auto core = how.sums.rbegin(); core != how.sums.rend(); ++core) {
      left.erase(left.begin() + *core);
      how.before -= *core < static_cast<int64_t>(space.before.size());
    }
    const bool batched = space.batched && !how.sums_batch;
    bool fits = left.size() == output.core() && batched == output.batched;
    for (const std::string& text : texts(output)) {
      const auto found = std::find(left.begin(), left.end(), text);
      if (!(fits = fits && found != left.end())) break;
      how.places.push_back(found - left.begin());
      found->clear();  // a dimension that occurs twice is two
    }
    if (!fits) {
      throw std::invalid_argument("pullback_runtime: '" + output.text +
                                  "' is not what is left of '" + space.text + "'");
    }
    const bool in_order = std::is_sorted(how.places.begin(), how.places.end());
    if (in_order && (!batched || how.before == output.before.size())) how.places.clear();
  }
}

}  // namespace pullback
