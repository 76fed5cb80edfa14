/// The rules of the race detector: kernels that break one, each with its repaired twin.
///
/// `race_rules NAME` runs one pair: the faulty one must be reported, the repaired one must not.
/// `race_rules random SEED COUNT` holds random histories against an exhaustive search.
#include <map>
#include <vector>

#include "race_in_block.h"
#include "race_in_grid.h"
#include "race_oracle.h"

namespace {

struct Case {
  std::string (*run)(bool repaired);
  std::vector<const char*> words;  // that the report has
};

const char *const by_barrier = "__syncthreads()", *const in_s = "'s' + 1020, shared, 4 bytes";
const std::map<std::string, Case> cases{
    {"missing_barrier", {missing_barrier, {"cuda-race [PB221]: kernel: ", by_barrier, in_s}}},
    {"barrier_in_reduction", {barrier_in_reduction, {"after the line, for every round"}}},
    {"barrier_at_end_of_loop", {barrier_at_end_of_loop, {"at the end of the loop"}}},
    {"missing_syncwarp", {missing_syncwarp, {"__syncwarp()"}}},
    {"collective_of_few", {collective_of_few, {"__syncwarp()"}}},
    {"collective_for_block", {collective_for_block, {by_barrier}}},
    {"collectives_in_a_row", {collectives_in_a_row, {"thread (2,0,0) reads"}}},
    {"unatomic_sum", {unatomic_sum, {"atomicAdd()", "of block (1,0,0)", "global, 4 bytes"}}},
    {"fence_of_one", {fence_of_one, {"__threadfence()"}}},
    {"fence_of_all", {fence_of_all, {"__threadfence()"}}},
    {"fence_too_early", {fence_too_early, {"__threadfence()"}}},
    {"fences_in_a_row", {fences_in_a_row, {"__threadfence()"}}},
    {"critical_section", {critical_section, {"of block"}}},
    {"volatile_flag", {volatile_flag, {"of block"}}},
    {"warp_in_step", {warp_in_step, {"__syncwarp()"}}},
    {"blocks_that_read_neighbours", {blocks_that_read_neighbours, {"a launch of its own"}}},
    {"atomic_and_plain_read", {atomic_and_plain_read, {"atomic:", "read: "}}},
    {"atomic_and_plain_write", {atomic_and_plain_write, {"atomic:", "write: "}}},
    {"different_values", {different_values, {"write: "}}},
    {"flag_that_all_set", {flag_that_all_set, {by_barrier, "1 byte"}}},
    {"sixteen_bytes", {sixteen_bytes, {"shared, 4 bytes"}}},
    {"copies", {copies, {"__syncwarp()"}}},
    {"cleared_memory", {cleared_memory, {"__syncwarp()"}}},
    {"neighbouring_bytes", {neighbouring_bytes, {"1 byte"}}},
    {"threads_that_leave", {threads_that_leave, {by_barrier}}},
    {"lanes_that_leave", {lanes_that_leave, {"__syncwarp()"}}},
    {"private_memory", {private_memory, {"global"}}},
    {"unwritten_shared", {unwritten_shared, {"cuda-memory [PB223]", "of block (1,0,0)"}}},
    {"partly_written", {partly_written, {"cuda-memory [PB223]", "16 bytes"}}},
    {"compare_and_swap", {compare_and_swap, {"cuda-race"}}},
    {"memory_that_is_freed", {memory_that_is_freed, {"cuda-race"}}},
    {"launches", {launches, {"cuda-race"}}},
};

int check(const Case& wanted) {
  const std::string faulty = wanted.run(false), repaired = wanted.run(true);
  std::printf("%s\n", faulty.c_str());
  bool right = repaired.empty() && !faulty.empty();
  for (const char* word : wanted.words) {
    if (faulty.find(word) != std::string::npos) continue;
    std::printf("not in it: %s\n", word);
    right = false;
  }
  if (!repaired.empty()) std::printf("the repaired one: %s\n", repaired.c_str());
  return right ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  if (count == 1) {
    for (const auto& each : cases) std::printf("%s\n", each.first.c_str());
    return 0;
  }
  if (words[1] == std::string("random")) {
    return check_random(std::stoul(words[2]), std::stoul(words[3]));
  }
  return check(cases.at(words[1]));
}
