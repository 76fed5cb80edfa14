#include "index_sizes.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace pullback {

namespace {

bool is_known(const Extent& extent, const CallSizes& sizes) {
  return std::all_of(extent.begin(), extent.end(), [&](const Step& step) {
    return step.kind != Step::Kind::dimension || sizes[step.value] >= 0;
  });
}

/// Rounds down. A divisor that is 0 was refused if an output has the size.
int64_t divide(int64_t left, int64_t right) {
  if (right == 0) return 0;
  const int64_t quotient = left / right, rest = left % right;
  return quotient - (rest != 0 && (rest < 0) != (right < 0));
}

struct Ends {
  int64_t least, most;
};

/// The checks of one call's sizes: define/math/required.py.
class SizeChecks {
 public:
  SizeChecks(const Signature& signature, const CallSizes& sizes)
      : signature_(signature), sizes_(sizes) {}

  void require(const ReadCheck& check) const {
    if (!all_positive(check.around) || !is_known(check.size, sizes_) || !has_values(check.place))
      return;
    for (const Span& fact : check.facts) {
      if (!has_values(fact) || ends(fact).most < 0) return;  // it is not selected
    }
    const int64_t size = evaluate(check.size, sizes_);
    const Ends place = ends(check.place);
    if (place.least >= 0 && place.most < size) return;
    if (!check.facts.empty() && !negative(check.before) && !negative(check.behind)) return;
    const int64_t read = place.least < 0 ? place.least : place.most;
    const std::string dimension =
        check.dimension ? "'" + std::string(check.dimension) + "' of size " + std::to_string(size)
                        : std::to_string(size);
    fail("out-of-bounds-read [PB141]", signature_,
         std::string(check.read) + " is outside of '" + check.tensor + "': it reads " +
             std::to_string(read) + " of the dimension " + dimension,
         "write pad(...) around it if zeros are meant there");
  }

  void require(const MaximumCheck& check) const {
    if (!all_positive(check.around) || !is_known(check.size, sizes_)) return;
    if (evaluate(check.size, sizes_) <= 0)
      fail("empty-maximum [PB148]", signature_, check.message, check.help);
  }

  /// Whether an index has no values. An unknown size has some.
  bool is_empty(const Table<Extent>& shape) const {
    return std::any_of(shape.begin(), shape.end(), [&](const Extent& extent) {
      return is_known(extent, sizes_) && evaluate(extent, sizes_) <= 0;
    });
  }

 private:
  bool all_positive(const Table<Extent>& extents) const {
    return std::all_of(extents.begin(), extents.end(), [&](const Extent& extent) {
      return is_known(extent, sizes_) && evaluate(extent, sizes_) > 0;
    });
  }

  bool has_values(const Span& span) const {
    return is_known(span.base, sizes_) &&
           std::all_of(span.moves.begin(), span.moves.end(), [&](const Span::Move& move) {
             return is_known(move.extent, sizes_) && evaluate(move.extent, sizes_) > 0;
           });
  }

  Ends ends(const Span& span) const {
    const int64_t base = evaluate(span.base, sizes_);
    Ends found{base, base};
    for (const Span::Move& move : span.moves) {
      const int64_t reach = (evaluate(move.extent, sizes_) - 1) * move.factor;
      (reach < 0 ? found.least : found.most) += reach;
    }
    return found;
  }

  bool negative(const Table<Span>& spans) const {
    return std::all_of(spans.begin(), spans.end(),
                       [&](const Span& span) { return !has_values(span) || ends(span).least < 0; });
  }

  const Signature& signature_;
  const CallSizes& sizes_;
};

/// The sizes that the line gives, in their places.
CallSizes given_sizes(const IndexTable& table, const Sizes& sizes,
                      c10::ArrayRef<c10::IValue> arguments) {
  CallSizes found(table.slots, -1);
  std::copy(sizes.dims.begin(), sizes.dims.end(), found.begin() + 1);
  found[1 + sizes.dims.size()] = std::accumulate(sizes.batch.begin(), sizes.batch.end(), int64_t{1},
                                                 std::multiplies<int64_t>());
  for (const IndexCount& count : table.counts)
    found[count.slot] = arguments[count.argument].toInt();
  return found;
}

}  // namespace

int64_t evaluate(const Extent& extent, const CallSizes& sizes) {
  c10::SmallVector<int64_t, 8> stack;
  for (const Step& step : extent) {
    if (step.kind == Step::Kind::number) {
      stack.push_back(step.value);
    } else if (step.kind == Step::Kind::dimension) {
      stack.push_back(sizes[step.value]);
    } else {
      const int64_t right = stack.pop_back_val();
      int64_t& left = stack.back();
      switch (step.kind) {
        case Step::Kind::multiply: left *= right; break;
        case Step::Kind::divide: left = divide(left, right); break;
        default: left += right;
      }
    }
  }
  return stack.back();
}

Ints evaluate(const Table<Extent>& shape, const CallSizes& sizes) {
  Ints found;
  for (const Extent& extent : shape) found.push_back(evaluate(extent, sizes));
  return found;
}

void require_counts(const Signature& signature, const IndexTable& table,
                    c10::ArrayRef<c10::IValue> arguments) {
  for (const IndexCount& count : table.counts) {
    const int64_t value = arguments[count.argument].toInt();
    if (value >= 0) continue;
    fail("negative-limit [PB156]", signature,
         "'" + std::string(count.name) + "' is " + std::to_string(value) +
             ", and an index runs up to it",
         "give 0, and the index has no values, or more");
  }
}

CallSizes find_sizes(const Signature& signature, const IndexTable& table, const Sizes& sizes,
                     c10::ArrayRef<c10::IValue> arguments, uint64_t wanted) {
  CallSizes found = given_sizes(table, sizes, arguments);
  for (const IndexSize& index : table.sizes) {
    if (!is_known(index.size, found)) continue;
    const int64_t size = evaluate(index.size, found);
    int64_t& known = found[index.slot];
    if (known >= 0 && known != size) {
      fail("size-mismatch [PB112]", signature,
           std::string("dimension '") + index.name + "' is " + std::to_string(known) +
               ", and its formula needs " + std::to_string(size));
    }
    known = size;
  }
  const SizeChecks checks(signature, found);
  for (size_t k = 0; k < table.outputs.count; ++k) {
    if (!(wanted >> k & 1) || checks.is_empty(table.outputs.items[k])) continue;
    for (const ReadCheck& check : table.reads) {
      if (check.output == k) checks.require(check);
    }
    for (const MaximumCheck& check : table.maxima) {
      if (check.output == k) checks.require(check);
    }
  }
  return found;
}

}  // namespace pullback
