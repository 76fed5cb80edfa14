#include "blocks.h"

#include "../kernel.h"
#include "../threads.h"
#include "loops.h"
#include "matrices.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

namespace pullback {

// Not without a name: the runtime has other programs.
namespace blocks {

/// The whole numbers of a program, one after another.
struct Numbers {
  std::vector<int64_t> values;
  size_t next = 0;

  explicit Numbers(PyObject* tuple) {
    require_tuple(tuple);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple); ++k) {
      values.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, k)));
    }
  }
  int64_t one() {
    if (next >= values.size())
      throw std::invalid_argument("pullback_runtime: a program ends early");
    return values[next++];
  }
  /// By its bits.
  double real() {
    const int64_t bits = one();
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
  std::vector<int64_t> many() {
    std::vector<int64_t> found(static_cast<size_t>(one()));
    for (int64_t& value : found) value = one();
    return found;
  }
  template <class Part>
  std::vector<Part> parts(size_t batches) {
    std::vector<Part> found;
    for (int64_t left = one(); left > 0; --left) found.emplace_back(*this, batches);
    return found;
  }
};

/// One block: where it begins, and how many rows and columns it has.
struct Block {
  int64_t first_row, first_column, rows, columns;
  const int64_t* batch;

  /// A size, or one of the block's numbers: -1 to -4.
  int64_t size(int64_t code) const {
    switch (code) {
      case -1: return rows;
      case -2: return columns;
      case -3: return first_row;
      case -4: return first_column;
      default: return code;
    }
  }
};

/// A part of a tensor, or of a task's own memory: where its first element is, in bytes.
struct Place {
  int64_t tensor;  // or -1: a task's own memory
  int64_t start;
  int64_t row, column;           // to the next row or column
  int64_t rows, columns;         // for each row or column of the block but the first
  std::vector<int64_t> batches;  // to the next value of each index of a batch

  Place(Numbers& numbers, size_t many)
      : tensor(numbers.one()),
        start(numbers.one()),
        row(numbers.one()),
        column(numbers.one()),
        rows(numbers.one()),
        columns(numbers.one()) {
    for (size_t k = 0; k < many; ++k) batches.push_back(numbers.one());
  }
  char* of(const std::vector<char*>& tensors, char* own, const Block& block) const {
    int64_t offset = start + row * block.first_row + column * block.first_column +
                     rows * (block.rows - 1) + columns * (block.columns - 1);
    for (size_t k = 0; k < batches.size(); ++k) offset += batches[k] * block.batch[k];
    return (tensor < 0 ? own : tensors[static_cast<size_t>(tensor)]) + offset;
  }
};

/// What a thread has for itself.
struct Memory {
  char* block;  // values of one block
  HalvesMemory halves;
};

/// What matrices are multiplied into real numbers: those of a program, or of bfloat16.
enum class Factors : int64_t { real, halves };

/// `c = scale a b`, or added to `c`: `m` rows and `n` columns, sums of `k` products.
struct Product {
  Factors factors;
  Place a, b, c;
  bool adds;
  int64_t m, n, k;
  int64_t steps[6];  // elements to the next row and to the next column: of a, b and c
  double scale;

  Product(Numbers& numbers, size_t batches)
      : factors(static_cast<Factors>(numbers.one())),
        a(numbers, batches),
        b(numbers, batches),
        c(numbers, batches),
        adds(numbers.one() != 0),
        m(numbers.one()),
        n(numbers.one()),
        k(numbers.one()) {
    for (int64_t& step : steps) step = numbers.one();
    scale = numbers.real();
  }

  void run(const std::vector<char*>& tensors, Memory& own, const Block& block, at::ScalarType type,
           bool by_onednn) const {
    const int64_t rows = block.size(m), columns = block.size(n), inner = block.size(k);
    const auto matrix = [&](const Place& place, at::ScalarType of, int64_t down, int64_t across,
                            const int64_t* strides) {
      const int64_t sizes[] = {down, across};
      return at::from_blob(place.of(tensors, own.block, block), sizes, {strides, 2},
                           at::TensorOptions().dtype(of));
    };
    const Target target{matrix(c, type, rows, columns, steps + 4), adds, scale};
    const auto of = factors == Factors::real ? type : at::kBFloat16;
    const at::Tensor first = matrix(a, of, rows, inner, steps),
                     second = matrix(b, of, inner, columns, steps + 2);
    if (factors == Factors::real) {
      multiply(target, first, second, by_onednn);
    } else {
      multiply_halves(target, first, second, own.halves);
    }
  }
};

/// Values of rows and columns that are added where these say. What lies outside is left out.
struct Placing {
  Place weight, places, to;
  bool has_places;  // or they are `first + down * row + across * column`
  int64_t part;     // bytes to the sum of the next row of blocks
  int64_t first, down, across;
  int64_t extent, step, width;  // how many places, elements to the next one, and of a row of values
  double scale;

  Placing(Numbers& numbers, size_t batches)
      : weight(numbers, batches),
        places(numbers, batches),
        to(numbers, batches),
        has_places(numbers.one() != 0),
        part(numbers.one()),
        first(numbers.one()),
        down(numbers.one()),
        across(numbers.one()),
        extent(numbers.one()),
        step(numbers.one()),
        width(numbers.one()),
        scale(numbers.real()) {}

  template <class T>
  void run(const std::vector<char*>& tensors, char* own, const Block& block, int64_t sum) const {
    const T* values = reinterpret_cast<const T*>(weight.of(tensors, own, block));
    const auto* at = reinterpret_cast<const int64_t*>(places.of(tensors, own, block));
    T* sums = reinterpret_cast<T*>(to.of(tensors, own, block) + part * sum);
    for (int64_t row = 0; row < block.rows; ++row, values += width, at += width) {
      if (has_places) {
        for (int64_t k = 0; k < block.columns; ++k) {
          if (at[k] >= 0 && at[k] < extent) sums[at[k] * step] += static_cast<T>(scale) * values[k];
        }
      } else {
        diagonal(sums, values, first + down * (block.first_row + row) + across * block.first_column,
                 block.columns);
      }
    }
  }

  /// Adds a row of values, the first one at a place and each other one `across` places further.
  template <class T>
  void diagonal(T* sums, const T* values, int64_t place, int64_t count) const {
    int64_t begin = 0, end = count;
    if (across > 0) {
      begin = std::max<int64_t>(0, (-place + across - 1) / across);
      end = std::min(count, (extent - place + across - 1) / across);
    } else if (across < 0) {
      begin = std::max<int64_t>(0, (place - extent - across) / -across);
      end = std::min(count, place / -across + (place >= 0));
    } else if (place < 0 || place >= extent) {
      return;
    }
    const T factor = static_cast<T>(scale);
    T* const to = sums + place * step;
    const int64_t next = across * step;
    if (next == 1) {
      for (int64_t k = begin; k < end; ++k) to[k] += factor * values[k];
    } else if (next == -1) {
      for (int64_t k = begin; k < end; ++k) to[-k] += factor * values[k];
    } else {
      for (int64_t k = begin; k < end; ++k) to[k * next] += factor * values[k];
    }
  }
};

/// A generated loop.
struct Loop {
  IndexKernel kernel;
  std::vector<Place> operands;
  std::vector<int64_t> strides, sizes;
  int64_t tasks, each;  // how many values of an index there are, and how many a task has

  Loop(Numbers& numbers, size_t batches)
      : kernel(reinterpret_cast<IndexKernel>(numbers.one())),
        operands(numbers.parts<Place>(batches)),
        strides(numbers.many()),
        sizes(numbers.many()),
        tasks(numbers.one()),
        each(numbers.one()) {}

  int run(const std::vector<char*>& tensors, char* own, const Block& block,
          const Scalar* scalars) const {
    c10::SmallVector<char*, 16> data;
    c10::SmallVector<int64_t, 8> numbers;
    for (const Place& place : operands) data.push_back(place.of(tensors, own, block));
    for (const int64_t size : sizes) numbers.push_back(block.size(size));
    const IndexCall call{data.data(), strides.data(), numbers.data(), scalars};
    return kernel(&call, 0, (block.size(tasks) + each - 1) / each);
  }
};

/// What is computed of one block: products, loops, products, and what is added at places.
struct Steps {
  std::vector<Product> before;
  std::vector<Loop> loops;
  std::vector<Product> after;
  std::vector<Placing> placings;

  Steps(Numbers& numbers, size_t batches)
      : before(numbers.parts<Product>(batches)),
        loops(numbers.parts<Loop>(batches)),
        after(numbers.parts<Product>(batches)),
        placings(numbers.parts<Placing>(batches)) {}
};

/// A pass over blocks.
struct Program {
  std::vector<int64_t> batches;  // how far the indices of batches run
  int64_t first;                 // row of all blocks together
  int64_t rows, columns;         // where these end
  int64_t block_rows, block_columns;
  int64_t memory;  // bytes that a task has for itself
  bool is_double;
  bool by_onednn;               // whether that multiplies large matrices, and not BLAS
  bool has_halves;              // whether matrices of halves are multiplied
  bool turns;                   // whether something of the columns is written
  bool follows;                 // whether rows come in their order, in each column, too
  int64_t parts;                // how many rows of blocks have sums of their own; or 0
  std::vector<Steps> kinds;     // of blocks
  std::vector<int64_t> blocks;  // of every row of blocks, the kinds of all its blocks; or -1

  explicit Program(Numbers& numbers)
      : batches(numbers.many()),
        first(numbers.one()),
        rows(numbers.one()),
        columns(numbers.one()),
        block_rows(numbers.one()),
        block_columns(numbers.one()),
        memory(numbers.one()),
        is_double(numbers.one() != 0),
        by_onednn(numbers.one() != 0),
        has_halves(numbers.one() != 0),
        turns(numbers.one() != 0),
        follows(numbers.one() != 0),
        parts(numbers.one()),
        kinds(numbers.parts<Steps>(batches.size())),
        blocks(numbers.many()) {}

  at::ScalarType type() const { return is_double ? at::kDouble : at::kFloat; }
  int64_t down() const { return (rows - first + block_rows - 1) / block_rows; }
  int64_t across() const { return (columns + block_columns - 1) / block_columns; }
  int64_t kind(int64_t row, int64_t column) const {
    return blocks[static_cast<size_t>(row * across() + column)];
  }
};

/// What a task does: some blocks of one row of blocks, for one value of each index of a batch.
struct Task {
  int64_t batch, row, begin, end;
};

struct Run {
  const Program& program;
  std::vector<char*> tensors;
  std::vector<Scalar> scalars;

  int block(int64_t kind, const Block& block, Memory& memory) const {
    char* const own = memory.block;
    const Steps& steps = program.kinds[static_cast<size_t>(kind)];
    const auto run = [&](const Product& product) {
      product.run(tensors, memory, block, program.type(), program.by_onednn);
    };
    for (const Product& product : steps.before) run(product);
    for (const Loop& loop : steps.loops) {
      // A place that data gives was seen to be inside where it is selected.
      const int status = loop.run(tensors, own, block, scalars.data());
      if (status & 1) return status;
    }
    for (const Product& product : steps.after) run(product);
    for (const Placing& placing : steps.placings) {
      const int64_t sum = block.first_row / program.block_rows % program.parts;
      if (program.is_double) placing.run<double>(tensors, own, block, sum);
      else placing.run<float>(tensors, own, block, sum);
    }
    return 0;
  }
  int task(const Task& task, Memory& memory) const {
    c10::SmallVector<int64_t, 4> batch(program.batches.size());
    int64_t rest = task.batch;
    for (size_t k = batch.size(); k-- > 0; rest /= program.batches[k]) {
      batch[k] = rest % program.batches[k];
    }
    Block block{};
    block.batch = batch.data();
    block.first_row = program.first + task.row * program.block_rows;
    block.rows = std::min(program.block_rows, program.rows - block.first_row);
    for (int64_t column = task.begin; column < task.end; ++column) {
      const int64_t kind = program.kind(task.row, column);
      if (kind < 0) continue;
      block.first_column = column * program.block_columns;
      block.columns = std::min(program.block_columns, program.columns - block.first_column);
      if (const int status = this->block(kind, block, memory)) return status;
    }
    return 0;
  }

  /// Tasks that add to one sum are one after another, on one thread.
  int tasks(const std::vector<std::vector<Task>>& all) const {
    return share_tasks(
        [&](int64_t begin, int64_t end) {
          // Whatever this thread has to do with derivatives, here nothing is recorded.
          const at::AutoDispatchBelowADInplaceOrView below;
          const std::unique_ptr<char[]> memory(new char[static_cast<size_t>(program.memory) + 64]);
          Memory own{memory.get() + (-reinterpret_cast<uintptr_t>(memory.get()) & 63), {}};
          int status = 0;
          for (int64_t k = begin; k < end; ++k) {
            for (const Task& each : all[static_cast<size_t>(k)]) status |= task(each, own);
          }
          if (program.has_halves) release_halves();
          return status;
        },
        static_cast<int64_t>(all.size()), 1);
  }

  /// Each row of blocks is a task. Where columns are written too there are as many turns as blocks,
  /// and in each a row of blocks has another column: so what is added to anything comes in an
  /// order that does not depend on the number of threads. Rows that follow on others, of which a
  /// program before had some, are added in their order, however many a program has.
  int all() const {
    int64_t many = 1;
    for (const int64_t size : program.batches) many *= size;
    const int64_t down = program.down(), across = program.across();
    const int64_t most = program.follows ? down + across - 1 : std::max(down, across);
    const int64_t turns = program.turns ? most : 1;
    for (int64_t turn = 0; turn < turns; ++turn) {
      std::vector<std::vector<Task>> found;
      for (int64_t batch = 0; batch < many; ++batch) {
        const size_t before = found.size();
        for (int64_t k = 0; k < down; ++k) {
          // The first and the last rows in turn: under a causal mask a thread has as much as others.
          const int64_t row = k % 2 ? down - 1 - k / 2 : k / 2;
          const int64_t column = program.follows ? turn - row : (row + turn) % turns;
          const bool is_whole = !program.turns, is_there = column >= 0 && column < across;
          if (!is_whole && (!is_there || program.kind(row, column) < 0)) continue;
          const Task task = {batch, row, is_whole ? 0 : column, is_whole ? across : column + 1};
          const auto shares = [&](const std::vector<Task>& other) {
            return program.parts && other[0].row % program.parts == row % program.parts;
          };
          const auto start = found.begin() + static_cast<std::ptrdiff_t>(before);
          const auto same = std::find_if(start, found.end(), shares);
          if (same == found.end()) found.push_back({task});
          else same->push_back(task);
        }
      }
      if (const int status = tasks(found)) return status;
    }
    return 0;
  }
};

}  // namespace blocks

PyObject* sweep(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 3) throw std::invalid_argument("pullback_runtime: three arguments were expected");
    blocks::Numbers numbers(arguments[0]);
    const blocks::Program program(numbers);
    blocks::Run run{program, {}, {}};
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(require_tuple(arguments[1])); ++k) {
      const at::Tensor& tensor = require_tensor(PyTuple_GET_ITEM(arguments[1], k));
      run.tensors.push_back(static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())));
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(require_tuple(arguments[2])); ++k) {
      run.scalars.push_back(scalar_of(PyTuple_GET_ITEM(arguments[2], k)));
    }
    if (PyErr_Occurred()) return nullptr;
    int status = 0;
    {
      const WithoutGil without;
      status = run.all();
    }
    if (status == 0) Py_RETURN_NONE;
    return PyLong_FromLong(status);
  });
}

}  // namespace pullback
