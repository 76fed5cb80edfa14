/// Meetings of lanes: the last lane of a mask to arrive computes the results of all.
#include "entry.h"

#include <cstring>

namespace cuda_on_cpu {
namespace {

/// The lane that a lane reads, by the rules of PTX's shfl: outside its segment, itself.
[[gnu::always_inline]] inline unsigned source_of(Meeting meeting, unsigned self,
                                                 uint64_t argument) {
  const auto index = unsigned(argument), width = unsigned(argument >> 32);
  const unsigned at = self & (width - 1);
  switch (meeting) {
    case Meeting::shuffle_up: return at < index ? self : self - index;
    case Meeting::shuffle_down: return at + uint64_t{index} >= width ? self : self + index;
    case Meeting::shuffle_xor: return (self ^ index) >= self - at + width ? self : self ^ index;
    default: return self - at + (index & (width - 1));
  }
}

[[gnu::always_inline]] inline bool is_shuffle(Meeting meeting) {
  return meeting >= Meeting::shuffle && meeting <= Meeting::shuffle_xor;
}

void shuffle(Worker& worker, Warp& warp, const Group& group) {
  uint64_t given[32];
  std::memcpy(given, warp.value, sizeof given);
  if (group.arrived == ~0u) {
    for (unsigned lane = 0; lane < 32; ++lane) warp.value[lane] = given[warp.argument[lane] & 31];
    return;
  }
  for (unsigned lanes = group.arrived; lanes; lanes &= lanes - 1) {
    const auto lane = unsigned(__builtin_ctz(lanes));
    const unsigned source = warp.argument[lane];
    if (group.arrived >> source & 1) {
      warp.value[lane] = given[source];
    } else if (checking) {
      const auto base = unsigned(&warp - worker.warp) * 32;
      const uint3 reader = worker.index[base + lane];
      stop("cuda-misuse [PB230]",
           "thread (%u,%u,%u) reads lane %u in %s, which does not take part\n    at: %s:%d\n"
           "    mask: 0x%08x, of which 0x%08x take part",
           reader.x, reader.y, reader.z, source, group.name, group.place.file, group.place.line,
           group.mask(), group.arrived);
    }
  }
}

void match_any(Warp& warp, unsigned lanes_of_group) {
  uint64_t given[32];
  std::memcpy(given, warp.value, sizeof given);
  for (unsigned lanes = lanes_of_group; lanes; lanes &= lanes - 1) {
    const auto lane = unsigned(__builtin_ctz(lanes));
    unsigned same = 0;
    for (unsigned others = lanes_of_group; others; others &= others - 1) {
      const auto other = unsigned(__builtin_ctz(others));
      if (given[other] == given[lane]) same |= 1u << other;
    }
    warp.value[lane] = same;
  }
}

/// Runs a joint operation of the lanes: each lane's value begins with the function to call, and
/// stays valid while all of them wait.
void run_joint(const Warp& warp, const Group& group) {
  if (group.arrived != ~0u) {
    stop("cuda-misuse [PB230]",
         "%s is done by 32 lanes, and only 0x%08x came\n    at: %s:%d\n"
         "    help: a warp that multiplies matrices has no lane that has returned or never was",
         group.name, group.arrived, group.place.file, group.place.line);
  }
  const auto all = reinterpret_cast<void* const*>(warp.value);
  const auto run = *static_cast<void (*const*)(void* const*)>(all[0]);
  run(all);
}

/// The result that is the same for all lanes.
uint64_t common_result(const Warp& warp, Meeting meeting, unsigned arrived) {
  const auto first = unsigned(__builtin_ctz(arrived));
  uint64_t result = warp.value[first];
  if (meeting == Meeting::ballot) {
    result = uint64_t{arrived} << 32;
    for (unsigned lanes = arrived; lanes; lanes &= lanes - 1) {
      const auto lane = unsigned(__builtin_ctz(lanes));
      result |= uint64_t{warp.argument[lane]} << lane;
    }
    return result;
  }
  if (meeting == Meeting::match_all) {
    for (unsigned lanes = arrived; lanes; lanes &= lanes - 1) {
      if (warp.value[__builtin_ctz(lanes)] != result) return 0;
    }
    return arrived;
  }
  for (unsigned lanes = arrived & (arrived - 1); lanes; lanes &= lanes - 1) {
    const auto a = unsigned(result), b = unsigned(warp.value[__builtin_ctz(lanes)]);
    switch (meeting) {
      case Meeting::add: result = a + b; break;
      case Meeting::min_int: result = int(b) < int(a) ? b : a; break;
      case Meeting::max_int: result = int(a) < int(b) ? b : a; break;
      case Meeting::min_unsigned: result = b < a ? b : a; break;
      case Meeting::max_unsigned: result = a < b ? b : a; break;
      case Meeting::bit_and: result = a & b; break;
      case Meeting::bit_or: result = a | b; break;
      case Meeting::bit_xor: result = a ^ b; break;
      default: break;
    }
  }
  return result;
}

/// The group that a lane joins: one with the same mask (or place) and purpose, or a new one.
unsigned group_for(Warp& warp, uint64_t meeting_and_mask, const Wait& wait) {
  for (unsigned groups = warp.groups; groups; groups &= groups - 1) {
    const auto g = unsigned(__builtin_ctz(groups));
    const Group& group = warp.group[g];
    if (group.meeting_and_mask != meeting_and_mask) continue;
    if (wait.mask != converged || same_place(group.place, wait.place())) return g;
  }
  const auto g = unsigned(__builtin_ctz(~warp.groups));
  warp.groups |= 1u << g;
  warp.group[g] = {meeting_and_mask, 0, wait.name, wait.place()};
  return g;
}

}  // namespace

/// Computes the results of a group's lanes, and lets the lanes continue.
void Worker::complete(unsigned w, unsigned g) {
  stop_if_cancelled();
  Warp& the_warp = warp[w];
  Group& group = the_warp.group[g];
#ifdef CUDA_ON_CPU_RACE
  race::collective(w, group.arrived);
#endif
  if (is_shuffle(group.meeting())) {
    shuffle(*this, the_warp, group);
  } else if (group.meeting() == Meeting::joint) {
    run_joint(the_warp, group);
  } else if (group.meeting() == Meeting::match_any) {
    match_any(the_warp, group.arrived);
  } else if (group.meeting() != Meeting::sync) {
    const uint64_t result = common_result(the_warp, group.meeting(), group.arrived);
    for (unsigned lanes = group.arrived; lanes; lanes &= lanes - 1) {
      the_warp.value[__builtin_ctz(lanes)] = result;
    }
  }
  the_warp.groups &= ~(1u << g);
  converging[w] &= ~(1u << g);
  spinning[w] &= ~group.arrived;
  make_ready(w, group.arrived);
}

void Worker::complete_groups_after_exit(unsigned w) {
  Warp& the_warp = warp[w];
  for (unsigned groups = the_warp.groups & ~converging[w]; groups; groups &= groups - 1) {
    const auto g = unsigned(__builtin_ctz(groups));
    const unsigned need = the_warp.group[g].mask() & alive[w];
    if ((the_warp.group[g].arrived & need) == need) complete(w, g);
  }
  if (converging[w]) check_convergence(w);
}

/// Lets lanes without a mask continue, those at one place, once no other lane of the warp can run.
///
/// Lanes that spin do not count as running: they may wait for these.
void Worker::check_convergence(unsigned w) {
  if (ready[w] & ~spinning[w]) return;
  complete(w, unsigned(__builtin_ctz(converging[w])));
}

namespace {

/// Returns the thread to continue with, which may be the same.
[[gnu::always_inline]] inline unsigned come_to_meeting(Worker& worker, Wait& wait,
                                                       uint64_t meeting_and_mask, uint64_t value,
                                                       uint64_t argument) {
  const auto meeting = Meeting(meeting_and_mask >> 32);
  wait.mask = unsigned(meeting_and_mask);
  worker.leave_loop();
  worker.leave_sweep();
  worker.fruitless = 0;
  const unsigned self = worker.current, w = self / 32, lane = self % 32, mask = wait.mask;
  if (mask != converged && !(mask >> lane & 1)) [[unlikely]] {
    stop("cuda-misuse [PB230]",
         "lane %u is not in its own mask of %s, 0x%08x\n    at: %s:%d\n"
         "    help: name every lane that executes the call",
         lane, wait.name, mask, wait.file, wait.line);
  }
  Warp& warp = worker.warp[w];
  warp.value[lane] = value;
  warp.argument[lane] =
      is_shuffle(meeting) ? source_of(meeting, lane, argument) : unsigned(argument);
  wait.result = &warp.value[lane];
  worker.thread[self].wait = &wait;
  const unsigned g = group_for(warp, meeting_and_mask, wait);
  Group& group = warp.group[g];
  group.arrived |= 1u << lane;
  if (mask == converged) worker.converging[w] |= 1u << g;
  const unsigned need = mask & worker.alive[w];
  if (mask == converged || (group.arrived & need) != need) return worker.next_while_waiting();
  const unsigned met = group.arrived;
  worker.complete(w, g);
  return worker.first_in_warp(w, met);
}

}  // namespace

#ifdef CUDA_ON_CPU_ENTRY_IN_ASSEMBLY

namespace {

[[gnu::noinline]] void* come_to_meeting_otherwise(uint64_t meeting_and_mask, const char* name,
                                                  uint64_t value, uint64_t argument, Wait* wait) {
  Worker& worker = worker_for(name);
  return go_on(worker, *wait, come_to_meeting(worker, *wait, meeting_and_mask, value, argument));
}

}  // namespace

/// The case of a lane that is neither the first to arrive nor the last, if the next can run. The
/// rest is out of line, so that this needs few registers.
extern "C" [[gnu::visibility("hidden"), gnu::used]] void* cuda_on_cpu_at_meeting(
    uint64_t meeting_and_mask, const char* name, uint64_t value, uint64_t argument, Wait* wait) {
  Worker* const worker = running;
  const auto otherwise = [=] {
    return come_to_meeting_otherwise(meeting_and_mask, name, value, argument, wait);
  };
  if (!worker || worker->looping || worker->sweeping) [[unlikely]]
    return otherwise();
  const unsigned self = worker->current, w = self / 32, lane = self % 32, bit = 1u << lane;
  const auto mask = unsigned(meeting_and_mask);
  Warp& warp = worker->warp[w];
  Group& group = warp.group[0];
  if (!(warp.groups & 1) || group.meeting_and_mask != meeting_and_mask || !(mask & bit))
    return otherwise();
  const unsigned arrived = group.arrived | bit, left = worker->ready[w] & ~bit;
  if (arrived == (mask & worker->alive[w])) return otherwise();
  if (!(left >> lane & 2) || worker->order != Order::forward || worker->converging[w] ||
      !worker->thread[self + 1].resume) {
    return otherwise();
  }
  group.arrived = arrived;
  worker->ready[w] = left;
  const auto meeting = Meeting(meeting_and_mask >> 32);
  warp.value[lane] = value;
  warp.argument[lane] =
      is_shuffle(meeting) ? source_of(meeting, lane, argument) : unsigned(argument);
  wait->mask = mask;
  wait->result = &warp.value[lane];
  worker->thread[self].wait = wait;
  note_resume(*worker, *wait);
  return worker->turn_to_started(self + 1);
}

[[gnu::naked]] uint64_t meet(uint64_t, const char*, uint64_t, uint64_t, Place) {
  CUDA_ON_CPU_ENTRY("%rsi", "%r8", "%r9", "%r8", "cuda_on_cpu_at_meeting");
}

#else

uint64_t meet(uint64_t meeting_and_mask, const char* name, uint64_t value, uint64_t argument,
              Place place) {
  Worker& worker = worker_for(name);
  Wait wait{nullptr, place.line, 0, place.file, name};
  worker.switch_to(come_to_meeting(worker, wait, meeting_and_mask, value, argument));
  return *wait.result;
}

#endif

}  // namespace cuda_on_cpu
