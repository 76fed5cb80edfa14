/// An operator given as mathematics: its index space, and the loops compiled for it so far.
#pragma once

#include "../kernel_abi.h"
#include "signature.h"

#include <ATen/core/stack.h>

#include <atomic>
#include <memory>

namespace pullback {

struct Definition;
struct Entry;

/// A compiled loop: a `Loop` on the CPU, a `Launcher` on a GPU.
struct CompiledLoop {
  void* address = nullptr;
  uint64_t used = 0;    // the inputs that it reads, one bit each; None reads as zeros
  uint64_t wanted = 0;  // the outputs that it computes: the requested ones, and perhaps more
};

/// The loops of one formula, each compiled when it is first needed.
///
/// A list that only grows: a call that finds its loop takes no lock. Few formulas have more than
/// two loops.
class Loops {
 public:
  struct Key {
    uint64_t wanted;   // outputs, one bit each
    uint64_t present;  // inputs that are not None
    at::ScalarType dtype;
    c10::DeviceType device;

    bool operator==(const Key&) const = default;
  };

  const CompiledLoop* find(const Key& key) const {
    for (const Item* item = newest_.load(std::memory_order_acquire); item; item = item->next) {
      if (item->key == key) return &item->loop;
    }
    return nullptr;
  }

  /// An added loop stays as long as the process, like the code that it points to.
  const CompiledLoop& add(const Key& key, CompiledLoop loop) {
    auto* item = new Item{key, loop, newest_.load()};
    while (!newest_.compare_exchange_weak(item->next, item)) {
    }
    return item->loop;
  }

 private:
  struct Item {
    Key key;
    CompiledLoop loop;
    const Item* next;
  };
  std::atomic<const Item*> newest_{nullptr};
};

struct Formula;

/// Supplies the derivatives of a formula, and its loops if it has any, when they are first needed.
///
/// In Python they are made then (python/lazy.cpp). A library without Python was built with all that
/// it will have (csrc/library/built.cpp).
class Supply {
 public:
  virtual ~Supply() = default;

  /// Returns a loop that `formula.loops` lacks, and adds it there.
  virtual const CompiledLoop& loop(const Signature& signature, const Formula& formula,
                                   const Loops::Key& key) = 0;

  /// Defines the operator again with a derivative that it lacks, "backward" or "jvp", if it can.
  virtual void complete(const Entry& entry, const char* kind) = 0;

  /// Which of its `keepings` a call has for its gradients, if any; the operator is then defined
  /// with it.
  virtual std::optional<size_t> keep(const Entry&, c10::ArrayRef<c10::IValue>) { return {}; }

  /// Throws the reason why there is no derivative, unless there can be none.
  virtual void explain_missing(const Signature&) const {}

  /// Equal for definitions of the same formula, also after a derivative was added.
  virtual const void* identity() const = 0;
};

struct Formula {
  /// How to make an output from the loop's result, which has the shape of the space.
  struct Finish {
    std::vector<int64_t> sums;  // core dimensions of the space, by position
    bool sums_batch = false;    // and those of `...`
    // For the core dimensions that are left: how many come before `...`, and the place of each of
    // the output's; no places if the output has them in the order of the space.
    size_t before = 0;
    std::vector<int64_t> places = {};
  };

  TensorSpec space;
  /// One an input: for each core dimension of the space, the input's dimension or -1; none if the
  /// input already lines up with the space from the right.
  std::vector<std::optional<std::vector<int64_t>>> alignments;
  std::vector<Finish> finishes;  // one an output
  bool cpu = false, cuda = false;
  std::shared_ptr<Loops> loops = std::make_shared<Loops>();

  /// Returns the dimensions over which the loop's result for output `k` is summed.
  Ints summed(size_t k, size_t batch) const;

  /// Returns which of the remaining dimensions each dimension of output `k` is, if it has places.
  Ints order(const Signature& signature, size_t k, size_t batch) const;

  /// Fills in `before` and `places`. Throws std::invalid_argument unless an output has exactly the
  /// dimensions of the space that are not summed.
  void find_places(const Signature& signature);
};

/// Calls `set(to, from)` for each dimension of the space that an input has: its place in the space,
/// and in the input.
template <class Set>
void each_aligned(const TensorSpec& spec, const TensorSpec& space,
                  const std::vector<int64_t>& alignment, size_t rank, size_t batch, Set set) {
  const size_t own = rank - spec.core();  // dimensions of `...`
  const size_t before = space.before.size();
  for (size_t d = 0; d < own; ++d) set(before + batch - own + d, spec.before.size() + d);
  for (size_t core = 0; core < alignment.size(); ++core) {
    if (alignment[core] < 0) continue;
    const size_t from = alignment[core];
    set(core < before ? core : core + batch, from < spec.before.size() ? from : from + own);
  }
}

/// Runs a formula operator on the arguments on the stack, and pushes its outputs. (formula.cpp)
void call_formula(const Definition& definition, c10::DeviceType device, torch::jit::Stack& stack);

}  // namespace pullback
