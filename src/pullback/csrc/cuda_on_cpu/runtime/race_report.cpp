#ifdef CUDA_ON_CPU_RACE

#include <algorithm>

#include "line_of.h"
#include "race_findings.h"

namespace cuda_on_cpu::race {
namespace {

/// A race between two of the author's lines.
struct Pair {
  Race race;
  std::string then, now;  // "/folder/add.cu:12"

  bool same_lines(const Pair& other) const {
    return (then == other.then && now == other.now) || (then == other.now && now == other.then);
  }
};

const void* address_of(uint64_t pc) { return reinterpret_cast<const void*>(uintptr_t{pc}); }

std::string indices(uint64_t linear, uint3 size) {
  const uint64_t x = linear % size.x, y = linear / size.x % size.y, z = linear / size.x / size.y;
  return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
}

/// "add.cu:12" of "/folder/add.cu:12".
std::string short_line(const std::string& line) { return line.substr(line.rfind('/') + 1); }

unsigned number_of(const std::string& line) {
  const size_t colon = line.rfind(':');
  return colon == std::string::npos ? 0 : static_cast<unsigned>(std::stoul(line.substr(colon + 1)));
}
bool same_file(const std::string& a, const std::string& b) {
  return a.compare(0, a.rfind(':'), b, 0, b.rfind(':')) == 0;
}

const char* verb(const Access& access) {
  if (access.kind & is_atomic) return "updates";
  return access.kind & is_write ? "writes" : "reads";
}
const char* row_name(const Access& access) {
  if (access.kind & is_atomic) return "atomic";
  return access.kind & is_write ? "write" : "read";
}

void add_row(std::string& text, const std::string& key, const std::string& value) {
  text += "\n    " + key + ": " + value;
}

/// The most telling first: plain accesses, then those with an atomic or a volatile access.
unsigned rank(const Race& race) {
  return (race.then.kind | race.now.kind) & (is_atomic | is_volatile);
}

std::string cure_with_atomic(const Pair& pair) {
  const Access& plain = pair.race.then.kind & is_atomic ? pair.race.now : pair.race.then;
  // Only the last atomic is remembered, so it is not known how far apart the two are.
  const std::string or_order = pair.race.within == Within::grid
                                   ? ", or do it in a launch of its own"
                                   : ", or put __syncthreads() between the two";
  return (plain.kind & is_write ? "write with an atomic too (atomicExch)"
                                : "read with an atomic too (atomicAdd(p, 0))") +
         or_order;
}

/// Whether there is a barrier at a line between the two.
bool barrier_between(const Pair& pair, const std::vector<Barrier>& barriers) {
  if (!same_file(pair.then, pair.now)) return false;
  const unsigned then = number_of(pair.then), now = number_of(pair.now);
  return std::any_of(barriers.begin(), barriers.end(), [&](const Barrier& barrier) {
    const auto line = static_cast<unsigned>(barrier.line);
    return std::min(then, now) < line && line < std::max(then, now) &&
           same_file(pair.then, std::string(barrier.file) + ":");
  });
}

std::string cure(const Pair& pair, const Findings& findings) {
  const Race& race = pair.race;
  const bool one_line = pair.then == pair.now;
  const char* barrier = race.within == Within::warp ? "__syncwarp()" : "__syncthreads()";
  if ((race.then.kind | race.now.kind) & is_atomic) return cure_with_atomic(pair);
  if (one_line && race.both_write) {
    const char* lock = "; if a lock guards it, put __threadfence() before its release";
    return "several threads update one element: use atomicAdd() or a kin, or an element for each" +
           std::string(findings.announces() ? lock : "");
  }
  if (race.within == Within::grid) {
    return findings.announces()
               ? "put __threadfence() after the write and before the atomic that announces it"
               : "blocks run in no order: do the second part in a launch of its own";
  }
  const std::string put = std::string("put ") + barrier;
  if (one_line) return put + " after the line, for every round of the loop";
  if (barrier_between(pair, findings.barriers())) {
    return put + " at the end of the loop as well: its next round comes too early";
  }
  return put + " between the two lines";
}

}  // namespace

/// Puts the text of one launch's findings together.
class Writer {
 public:
  explicit Writer(const Findings& findings) : findings_(findings) { find_pairs(); }

  Report report(bool forgot) const {
    if (!pairs_.empty()) return {"cuda-race [PB221]", race_text() + forgotten(forgot)};
    if (findings_.unwritten_.empty() || forgot) return {};
    return {"cuda-memory [PB223]", unwritten_text()};
  }

 private:
  void find_pairs() {
    std::vector<const void*> pcs;
    std::vector<const Race*> races;
    for (const auto& [code, race] : findings_.races_) {
      if (!findings_.counts(race)) continue;
      races.push_back(&race);
      pcs.push_back(address_of(race.then.pc));
      pcs.push_back(address_of(race.now.pc));
    }
    if (races.empty()) return;
    const auto lines = lines_of(pcs);
    for (size_t i = 0; i < races.size(); ++i) add({*races[i], lines[2 * i], lines[2 * i + 1]});
    std::stable_sort(pairs_.begin(), pairs_.end(),
                     [](const Pair& a, const Pair& b) { return rank(a.race) < rank(b.race); });
  }

  void add(Pair pair) {
    for (Pair& known : pairs_) {
      if (!known.same_lines(pair)) continue;
      const bool farther = pair.race.within > known.race.within;
      known.race.add(pair.race);
      if (farther) known.then = pair.then, known.now = pair.now;
      return;
    }
    pairs_.push_back(std::move(pair));
  }

  std::string thread(const Access& access) const {
    return "thread " + indices(access.thread, findings_.block_);
  }
  std::string thread_and_block(const Access& access) const {
    const uint64_t block = findings_.blocks_.at(access.block - 1);
    return thread(access) + " of block " + indices(block, findings_.grid_);
  }
  std::string who(const Access& access, Within within) const {
    return within == Within::grid ? thread_and_block(access) : thread(access);
  }
  std::string where(const std::string& line) const {
    return line.empty() ? "" : " at " + short_line(line);
  }
  std::string row(const Access& access, const std::string& line) const {
    return (line.empty() ? "a line not known" : line) + ", " + thread_and_block(access);
  }

  std::string race_text() const {
    const Pair& first = pairs_.front();
    const Race& race = first.race;
    // The one that writes is named last: "reads what ... writes".
    const bool swap = !(race.then.kind & is_write);
    const Access &a = swap ? race.then : race.now, &b = swap ? race.now : race.then;
    const std::string& a_line = swap ? first.then : first.now;
    const std::string& b_line = swap ? first.now : first.then;
    std::string text = findings_.kernel_ + ": " + who(a, race.within) + " " + verb(a) +
                       where(a_line) + " what " + who(b, race.within) + " " + verb(b) +
                       (a_line == b_line ? " there too" : where(b_line)) +
                       ", and nothing orders them";
    add_row(text, row_name(race.then), row(race.then, first.then));
    add_row(text, row_name(race.now), row(race.now, first.now));
    add_row(text, "memory", race.memory);
    add_row(text, "launched", findings_.launched_at_);
    if (pairs_.size() > 1) add_row(text, "more", more());
    add_row(text, "help", cure(first, findings_));
    return text;
  }

  std::string more() const {
    constexpr size_t most = 4;
    std::string text;
    for (size_t i = 1; i < std::min(most, pairs_.size()); ++i) {
      const Pair& pair = pairs_[i];
      text += (i > 1 ? "; " : "") + short_line(pair.then) + " and " + short_line(pair.now);
    }
    if (pairs_.size() <= most) return text;
    const size_t others = pairs_.size() - most;
    text += "; and " + std::to_string(others);
    return text + (others == 1 ? " other pair" : " other pairs");
  }

  std::string unwritten_text() const {
    const Unwritten& first = findings_.unwritten_.begin()->second;
    const std::string line = line_of(address_of(first.read.pc));
    std::string text = findings_.kernel_ + ": " + thread(first.read) + " reads" + where(line) +
                       " shared memory that no thread of its block has written";
    add_row(text, row_name(first.read), row(first.read, line));
    add_row(text, "memory", first.memory);
    add_row(text, "launched", findings_.launched_at_);
    const bool named = first.memory[0] == '\'';
    add_row(text, "help",
            named ? "write it first: on a GPU it holds whatever was there before"
                  : "it is in no variable: an index may be out of bounds");
    return text;
  }

  static std::string forgotten(bool forgot) {
    if (!forgot) return {};
    return "\n    note: the launch uses too much memory to remember all of it; there may be more";
  }

  const Findings& findings_;
  std::vector<Pair> pairs_;
};

Report Findings::report(bool forgot) const { return Writer(*this).report(forgot); }

}  // namespace cuda_on_cpu::race

#endif
