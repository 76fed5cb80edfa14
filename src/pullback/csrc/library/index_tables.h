/// An operator in index notation as data, for CPUs or for GPUs: its loops over indices, and what a call
/// works out for them.
///
/// `pullback build --as cmake` writes the tables (tables/ of the project); indexed.cpp reads them.
/// Includes no PyTorch header, so that a file of tables compiles at once.
#pragma once

#include "../kernel_abi.h"
#include "../runtime/step.h"

namespace pullback {

/// A list that is written as data.
template <class T>
struct Table {
  const T* items = nullptr;
  size_t count = 0;

  const T* begin() const { return items; }
  const T* end() const { return items + count; }
  bool empty() const { return count == 0; }
};

/// A number that follows from the sizes of a call: `Step::Kind::dimension` is a place among them.
///
/// The first of them is into how many chunks the kernel that runs cuts its sum; then come the line's
/// dimensions, all of `...` together, the int scalars that count, the indices that are no dimension,
/// and the entries of sums over segments.
using Extent = Table<Step>;

/// How a tensor has to lie for a kernel.
struct Layout {
  struct Packed {
    int64_t dimension, stride;
  };
  int dtype;     // at::ScalarType
  int64_t unit;  // the dimension whose elements are next to each other; -1: any stride will do
  Table<Packed> packed;  // dimensions whose strides, in elements, the kernel knows
  uintptr_t aligned;     // bytes that its address is a multiple of
};

/// A tensor that is there before any kernel runs.
struct LoopInput {
  enum class Kind { input, begin, end, index } kind;
  size_t number;    // of the operator's input; or which index of a segment's entries
  size_t segments;  // of the group: whose begin, end or index it is
  Layout layout;
};

/// A tensor of a kernel: its place among the inputs and all that was written so far.
struct LoopOperand {
  size_t place;
  const Layout* total;  // how it has to lie if it is a total; else null
};

/// The totals of a kernel that adds up chunks: chunks are summed, and dimensions permuted.
struct LoopTotal {
  size_t place;
  Table<Extent> shape;
  int64_t summed;
  Table<int64_t> order;
};

struct LoopKernel {
  /// A row of values that a task keeps in the shared memory of its block.
  struct Row {
    Extent length;
    int64_t beyond;  // values behind its end
    int64_t bytes;   // of a value
  };
  struct Written {
    int dtype;
    Table<Extent> shape;
  };
  /// Tasks are counted by a size, of which one has so much.
  struct Share {
    Extent size;
    int64_t each;
  };
  struct Trip {
    Extent size;
    double divisor;
  };
  /// Vector operations, and how often they are done.
  struct Cost {
    double operations;
    Table<Trip> trips;
  };

  IndexKernel function;    // on a CPU
  IndexLauncher launcher;  // on a GPU
  Table<LoopOperand> operands;
  Table<Written> written;  // totals come first, and are flat
  Table<LoopTotal> totals;
  Table<Extent> sizes;
  Table<Share> tasks;    // for each chunk
  const int64_t* lanes;  // if not null, `each` counts vectors of so many
  Extent over;           // how far the index runs that is cut into chunks; empty: there is none
  Table<Cost> costs;
  bool inner;  // what it writes is only for the later kernels
  // On a GPU:
  Table<Row> rows;
  int64_t groups;  // tasks of a block
  int64_t enough;  // tasks that keep it busy: a sum is not cut into chunks beyond that
};

/// Kernels that run one after another.
struct LoopChain {
  Table<LoopInput> inputs;
  Table<LoopKernel> kernels;
};

/// The entries of a sum that data scatters: they are sorted by their rows before the kernels run.
struct LoopSegments {
  LoopChain places;     // computes the row of each entry
  Table<Extent> batch;  // each value of these indices has rows of its own
  Table<Extent> shape;  // how far the indices of an entry run
  Extent rows;
  size_t slot;  // among the sizes: how many entries there are
};

/// An index that data gives. Its loop gives it where it is selected and outside, elsewhere `nowhere`.
struct LoopPlaces {
  LoopChain places;
  const char* tensor;
  const char* dimension;
  Extent size;
};
constexpr int64_t nowhere = INT64_MIN;

/// What becomes of one result of the loops of a recurrence.
struct LoopResult {
  Table<size_t> outputs;  // those that it is
  int64_t state;          // its place among the inputs of later groups; -1: none reads it
  Table<int64_t> order;   // of its dimensions
  bool is_ring;    // of the steps only the last ones are there: of a total over them, or a state of
                   // which only the last one is read
  Extent last;     // the last of them
  int64_t summed;  // how many dimensions before that of the steps a total is added up over
};

/// Loops that compute some outputs together, or the states of a recurrence.
struct LoopGroup {
  Table<size_t> outputs;
  Table<LoopResult> results;  // of states, in place of `outputs`
  Table<size_t> scalars;      // that the kernels take
  LoopChain chain;
  Table<LoopSegments> segments;
  Table<LoopPlaces> checked;
  bool silent;  // its kernels do not say that a place was outside: it is looked up before
};

/// Loops for one kind of call.
struct LoopChoice {
  struct Known {
    size_t slot;
    int64_t size;
  };
  int dtype;                 // shared by tensors whose dtype the line leaves open
  uint64_t wanted, present;  // outputs that they compute, inputs that are not None
  Table<Known> made_for;     // sizes that the call has to have
  Table<const LoopGroup*> groups;
};

/// Where something is read: from its least to its greatest value as indices run.
struct Span {
  struct Move {
    Extent extent;
    int64_t factor;
  };
  Extent base;
  Table<Move> moves;
};

/// A read that is inside its tensor for most sizes.
struct ReadCheck {
  size_t output;
  Table<Extent> around;  // how far the indices of the reductions run that it is in
  Span place;
  Extent size;
  const char* read;  // as it is written
  const char* tensor;
  const char* dimension;  // null: its name is its size
  /// Of a read that `where` selects: sums that are not negative where it does. It is outside only if
  /// one of the last two lists is negative throughout: what is left before and behind the place if a
  /// fact holds.
  Table<Span> facts, before, behind;
};

/// A maximum, which has to be of something.
struct MaximumCheck {
  size_t output;
  Table<Extent> around;
  Extent size;
  const char* message;
  const char* help;
};

/// An int scalar that says how far an index runs.
struct IndexCount {
  const char* name;
  size_t slot;
  size_t argument;
};

/// An index that is no dimension, or has to be as large as one.
struct IndexSize {
  const char* name;
  size_t slot;
  Extent size;
};

/// How tasks are shared among threads, and long sums cut: kernels/loops/cpu.py and cuda.py.
struct LoopLimits {
  double grain;         // operations that a thread of a CPU does at least
  double chunk;         // and a chunk
  int64_t chunks;       // at most
  int64_t rows, few;    // rows of a chunk at least, beyond so few chunks
  int64_t (*shared)();  // bytes of shared memory that rows of a block may take on the current GPU
};

/// All that a library knows of an operator in index notation, on one kind of device.
struct IndexTable {
  size_t slots;  // sizes of a call
  Table<IndexCount> counts;
  Table<IndexSize> sizes;
  Table<Table<Extent>> outputs;  // how far their indices run, and those of states behind them
  Table<ReadCheck> reads;
  Table<MaximumCheck> maxima;
  Table<LoopChoice> choices;
  LoopLimits limits;
};

}  // namespace pullback
