/// The words of csrc/index for a GPU, where a thread stands for each lane of a vector.
///
/// A `Real` is one element, that of the thread's lane; what is the same in all lanes is computed by
/// every thread. The threads of a task take the same way through it, for loops run over the place of
/// the *first* lane and edges are masks: so all of them meet wherever one does. Two tasks of a warp
/// may be in different branches, so they meet by masks of their own.
#pragma once

#include "call.h"
#if defined(__CUDACC__)
#include "../../formula/cuda/special.cuh"
#include "../../formula/cuda/storage.cuh"
#include "../places.h"

#define PULLBACK_DEVICE __device__ __forceinline__

namespace pullback::index {

using Compute = Real;

/// How many values are added up before their total is added to that of the earlier blocks.
constexpr int64_t block_of_sum = 128;
constexpr int64_t least_whole = INT64_MIN;

/// x*y + z, rounded once.
PULLBACK_DEVICE Real multiply_add(Real x, Real y, Real z) { return fma(x, y, z); }
PULLBACK_DEVICE Whole multiply_add(Whole x, Whole y, Whole z) { return wrapped_product(x, y) + z; }

// The threads of a task.

PULLBACK_DEVICE int lane() { return int(threadIdx.x) % lanes; }

/// The task's threads in this warp: all of them, or those of one of its tasks.
PULLBACK_DEVICE unsigned mates() {
  if constexpr (lanes >= 32) {
    return 0xffffffffu;
  } else {
    return ((1u << (lanes % 32)) - 1) << (threadIdx.x % 32 / lanes * lanes);
  }
}

/// Waits for all threads of the task, and lets them see what each has written.
PULLBACK_DEVICE void meet() {
  if constexpr (lanes > 32) {
    __syncthreads();
  } else {
    __syncwarp(mates());
  }
}

// Loads and stores. A lane outside of the size reads nothing and has 0.

template <class Stored>
PULLBACK_DEVICE Value<Stored> load_one(const char* from) {
  return Storage<Stored>::load(*reinterpret_cast<const typename Storage<Stored>::Bits*>(from));
}
template <class Stored>
PULLBACK_DEVICE Value<Stored> load(const char* from) {
  return load_one<Stored>(from + lane() * sizeof(Stored));
}
/// Elements `step` bytes apart.
template <class Stored>
PULLBACK_DEVICE Value<Stored> load_strided(const char* from, int64_t step) {
  return load_one<Stored>(from + lane() * step);
}
/// The same in the lanes from `first` to before `last`.
template <class Stored>
PULLBACK_DEVICE Value<Stored> load_part(const char* from, int64_t step, int64_t first,
                                        int64_t last) {
  if (lane() < first || lane() >= last) return Value<Stored>(0);
  return load_strided<Stored>(from, step);
}
/// Elements at places `factor` apart, `step` bytes each, of which `first` is that of the first lane.
template <class Stored>
PULLBACK_DEVICE Value<Stored> load_apart(const char* from, int64_t step, int64_t first,
                                         int64_t factor, int64_t size) {
  if (!inside(first + lane() * factor, size)) return Value<Stored>(0);
  return load_strided<Stored>(from, step);
}
template <class Stored>
PULLBACK_DEVICE Value<Stored> load_edge(const char* from, int64_t first, int64_t size) {
  return load_apart<Stored>(from, sizeof(Stored), first, 1, size);
}
/// Elements at the place given in each lane.
template <class Stored>
PULLBACK_DEVICE Value<Stored> load_at(const char* from, int64_t step, Whole place, int64_t size) {
  return inside(place, size) ? load_one<Stored>(from + place * step) : Value<Stored>(0);
}

/// 16 bytes of neighbours, which are aligned, by one instruction.
template <class Stored, int count>
PULLBACK_DEVICE Pack<Stored, count> load_pack(const char* from) {
  return *reinterpret_cast<const Pack<Stored, count>*>(from);
}

template <class Stored>
PULLBACK_DEVICE void put(char* to, Value<Stored> value) {
  *reinterpret_cast<typename Storage<Stored>::Bits*>(to) = Storage<Stored>::store(value);
}
template <class Stored>
PULLBACK_DEVICE void store(char* to, Value<Stored> value) {
  put<Stored>(to + lane() * sizeof(Stored), value);
}
/// The first `count` lanes.
template <class Stored>
PULLBACK_DEVICE void store_some(char* to, int64_t step, Value<Stored> value, int64_t count) {
  if (lane() < count) put<Stored>(to + lane() * step, value);
}
template <class Stored>
PULLBACK_DEVICE void store_edge(char* to, Value<Stored> value, int64_t count) {
  store_some<Stored>(to, sizeof(Stored), value, count);
}
template <class Stored>
PULLBACK_DEVICE void store_one(char* to, Value<Stored> value) {
  store_some<Stored>(to, 0, value, 1);
}

/// The number that is in every lane.
template <class Vector>
PULLBACK_DEVICE Vector one(Vector x) {
  return x;
}
template <class Vector>
PULLBACK_DEVICE Vector numbers() {
  return Vector(lane());
}
PULLBACK_DEVICE Truth inside_lanes(int64_t first, int64_t size) {
  return inside(first + lane(), size);
}
/// Whether the place of each lane is inside; on a GPU a place of a lane and a number are one type.
PULLBACK_DEVICE Truth inside_each(Whole place, int64_t size) { return inside(place, size); }

/// A lane's place divided by a number and rounded down; neighbours read neighbours.
template <int divisor>
PULLBACK_DEVICE Whole divided(int64_t first) {
  return floor_divide(first + lane(), int64_t{divisor});
}
/// Whether what the division leaves, moved, is inside a size.
template <int divisor>
PULLBACK_DEVICE Truth rest_inside(int64_t first, int64_t shift, int64_t size) {
  return inside(first + lane() - divided<divisor>(first) * divisor + shift, size);
}

/// Of numbers that are the same in all lanes, as a CPU has to be told.
PULLBACK_DEVICE Real div_alike(Real x, Real y) { return x / y; }
PULLBACK_DEVICE Real sqrt_alike(Real x) { return sqrt(x); }

/// A divisor for many values: its reciprocal, and a power of two that keeps that in range.
struct Divisor {
  Real reciprocal, scale;
  PULLBACK_DEVICE static Divisor alike(Real x) { return Divisor(x); }
  PULLBACK_DEVICE explicit Divisor(Real x) {
    constexpr Real far = Real(sizeof(Real) == 8 ? 0x1p1000 : 0x1p100);
    scale = abs(x) > far ? 1 / far : abs(x) < 1 / far ? far : Real(1);
    reciprocal = 1 / (x * scale);
  }
  PULLBACK_DEVICE friend Real operator/(Real x, const Divisor& by) {
    return x * by.reciprocal * by.scale;
  }
};

// Reductions across the threads of a task. All joins are made in one order, so that a maximum of 0
// and -0 is the same in all of them.

struct Add {
  template <class V>
  static PULLBACK_DEVICE V join(V a, V b) {
    return a + b;
  }
};
struct Most {
  template <class V>
  static PULLBACK_DEVICE V join(V a, V b) {
    return maximum(a, b);
  }
};

template <class Join, class V>
PULLBACK_DEVICE V over_lanes(V x) {
  constexpr int width = lanes < 32 ? lanes : 32;
  PULLBACK_UNROLL
  for (int step = width / 2; step; step /= 2)
    x = Join::join(x, V(__shfl_down_sync(mates(), x, step, width)));
  x = __shfl_sync(mates(), x, 0, width);
  if constexpr (lanes > 32) {
    __shared__ V room[threads / 32];
    // Nobody reads the values of the reduction before any more.
    __syncthreads();
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    x = room[0];
    PULLBACK_UNROLL
    for (int k = 1; k < threads / 32; ++k) x = Join::join(x, room[k]);
  }
  return x;
}
template <class V>
PULLBACK_DEVICE V sum_of_lanes(V x) {
  return over_lanes<Add>(x);
}
template <class V>
PULLBACK_DEVICE V most_of_lanes(V x) {
  return over_lanes<Most>(x);
}

/// Where the greatest value is so far: the first of equal ones, or of the NaNs.
template <class V>
struct Greatest {
  V value;
  Whole place;

  PULLBACK_DEVICE Greatest(V value, Whole place) : value(value), place(place) {}
  PULLBACK_DEVICE explicit Greatest(V least) : Greatest(least, -1) {}
  PULLBACK_DEVICE static Truth is_nan(V x) { return x != x; }

  PULLBACK_DEVICE void take(V other, Whole at, Truth counts, Truth first) {
    const Truth greater = other > value || (is_nan(other) && !is_nan(value));
    if (!counts || !(greater || first)) return;
    value = other, place = at;
  }
  /// Places arrive in order within a lane.
  PULLBACK_DEVICE void see(V other, Whole at, Truth counts) { take(other, at, counts, place < 0); }
  /// Each lane has the next place.
  PULLBACK_DEVICE void see_from(V other, Whole first, Truth counts) {
    see(other, first + lane(), counts);
  }
  PULLBACK_DEVICE Whole each() const { return place; }
  /// Merges what another accumulator has seen.
  PULLBACK_DEVICE void join(const Greatest& other) {
    const Truth equal = other.value == value || (is_nan(other.value) && is_nan(value));
    take(other.value, other.place, other.place >= 0, place < 0 || (equal && other.place < place));
  }
  /// The place in every lane; -1 if nothing was seen.
  PULLBACK_DEVICE Whole all() const {
    constexpr int width = lanes < 32 ? lanes : 32;
    Greatest best = *this;
    PULLBACK_UNROLL
    for (int step = width / 2; step; step /= 2)
      best.join({V(__shfl_down_sync(mates(), best.value, step, width)),
                 Whole(__shfl_down_sync(mates(), best.place, step, width))});
    best.place = __shfl_sync(mates(), best.place, 0, width);
    if constexpr (lanes > 32) {
      best.value = __shfl_sync(mates(), best.value, 0, width);
      __shared__ V values[threads / 32];
      __shared__ Whole places[threads / 32];
      __syncthreads();
      if (threadIdx.x % 32 == 0) {
        values[threadIdx.x / 32] = best.value;
        places[threadIdx.x / 32] = best.place;
      }
      __syncthreads();
      best = {values[0], places[0]};
      for (int k = 1; k < threads / 32; ++k) best.join({values[k], places[k]});
    }
    return best.place;
  }
};

/// Rows of values that a task keeps, in shared memory. Each is read by the thread that wrote it.
struct Scratch {
  char* memory;
  PULLBACK_DEVICE explicit Scratch(int64_t bytes) {
    extern __shared__ double pullback_rows[];
    memory = reinterpret_cast<char*>(pullback_rows) + threadIdx.x / lanes * bytes;
  }
  PULLBACK_DEVICE char* take(int64_t bytes) {
    char* const here = memory;
    memory += (bytes + 63) / 64 * 64;
    return here;
  }
};

// Totals of a chunk, in double, which one task alone adds to: in its own memory, if there is room.

PULLBACK_DEVICE void clear(double* total, int64_t count) {
  for (int64_t k = lane(); k < count; k += lanes) total[k] = 0;
  meet();
}
/// Adds a number that is in every lane.
PULLBACK_DEVICE void add_one(double& total, Real value) {
  if (lane() == 0) total += double(value);
}
/// Sets a total that is one task's to a number that is in every lane.
PULLBACK_DEVICE void set_one(double& total, Real value) {
  if (lane() == 0) total = double(value);
}
/// Sets totals to the first `count` lanes.
PULLBACK_DEVICE void set_to(double* total, Real value, int64_t count) {
  if (lane() < count) total[lane()] = double(value);
}
/// Adds the first `count` lanes.
PULLBACK_DEVICE void add_to(double* total, Real value, int64_t count) {
  if (lane() < count) total[lane()] += double(value);
}

/// Writes the totals that were added up in the task's own memory.
PULLBACK_DEVICE void write_totals(double* to, const double* total, int64_t count) {
  meet();
  for (int64_t k = lane(); k < count; k += lanes) to[k] = total[k];
}

}  // namespace pullback::index

/// The kernel of a task's function. Only whole groups leave, and only groups meet.
#define PULLBACK_INDEX_KERNEL(name)                                                           \
  extern "C" __global__ void __launch_bounds__(pullback::index::threads)                      \
      name##_kernel(const pullback::index::Call call, int64_t tasks) {                        \
    const int64_t task = int64_t(blockIdx.x) * pullback::index::groups +                      \
                         threadIdx.x / pullback::index::lanes;                                \
    if (task < tasks) pullback::index::name##_task(&call, task);                              \
  }
#endif
