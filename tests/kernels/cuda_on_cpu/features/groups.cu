/// Cooperative groups: blocks, tiles, coalesced lanes, partitions, and what they compute together.
#include "check.cuh"

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

__global__ void of_block(int* out) {
  __shared__ int shared[96];
  cg::thread_block block = cg::this_thread_block();
  shared[block.thread_rank()] = static_cast<int>(block.thread_rank());
  block.sync();
  const unsigned other = block.size() - 1 - block.thread_rank();
  out[block.thread_rank()] = shared[other] + 1000 * static_cast<int>(block.group_index().x) +
                             10000 * static_cast<int>(block.thread_index().y);
  cg::sync(block);
  if (block.thread_rank() == 0)
    out[96] = static_cast<int>(block.num_threads() + block.dim_threads().x);
}

template <unsigned N>
__global__ void of_tiles(int* out, int* ok) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<N>(block);
  const int rank = static_cast<int>(tile.thread_rank()), me = static_cast<int>(block.thread_rank());
  bool good = tile.size() == N && tile.num_threads() == N;
  good = good && static_cast<unsigned>(rank) == me % N;
  good = good && tile.meta_group_rank() == me / N && tile.meta_group_size() == block.size() / N;
  const int first = me - rank;
  good = good && tile.shfl(me, 0) == first;
  good = good && (N == 1 || tile.shfl_xor(me, 1) == (me ^ 1));
  good = good && tile.shfl_down(me, 1) == (rank + 1 < static_cast<int>(N) ? me + 1 : me);
  good = good && tile.shfl_up(me, 1) == (rank > 0 ? me - 1 : me);
  good = good && tile.any(rank == 0) && tile.all(rank >= 0) && !tile.any(rank > 100);
  good = good && tile.ballot(rank == 0) == 1u;
  good = good && tile.match_any(rank / 2) == (N > 1 ? 3u << (rank & ~1) : 1u);
  good = good && cg::reduce(tile, rank, cg::plus<int>()) == static_cast<int>(N * (N - 1) / 2);
  good = good && cg::reduce(tile, me, cg::greater<int>()) == first + static_cast<int>(N) - 1;
  good = good &&
         cg::reduce(tile, static_cast<float>(me), cg::less<float>()) == static_cast<float>(first);
  good = good && cg::inclusive_scan(tile, 1) == rank + 1;
  good = good && cg::exclusive_scan(tile, 1, cg::plus<int>()) == rank;
  tile.sync();
  if constexpr (N >= 4) {
    auto part = cg::tiled_partition<N / 4>(tile);
    good = good && part.meta_group_size() == 4 && part.meta_group_rank() == rank / (N / 4);
    good = good && part.shfl(me, 0) == me / static_cast<int>(N / 4) * static_cast<int>(N / 4);
  }
  ok[me] = good;
  out[me] = tile.shfl(rank, N - 1);
}

__global__ void of_some_lanes(int* ok) {
  const int me = static_cast<int>(threadIdx.x);
  ok[me] = 1;
  if (me % 3 == 0) {
    cg::coalesced_group group = cg::coalesced_threads();
    const int rank = static_cast<int>(group.thread_rank()), size = static_cast<int>(group.size());
    // On a GPU the lanes that are together are not promised, and yet these are.
    bool good = size == 11 && rank == me / 3;
    good = good && group.shfl(me, 2) == 6 && group.ballot(rank < 2) == 3u && group.any(me == 0);
    good = good && group.shfl_down(me, 1) == (rank + 1 < size ? me + 3 : me);
    good = good && group.shfl_up(me, 1) == (rank > 0 ? me - 3 : me);
    good = good && cg::reduce(group, 1, cg::plus<int>()) == size &&
           cg::inclusive_scan(group, 1) == rank + 1;
    group.sync();
    ok[me] = good;
  }
}

__global__ void of_partitions(int* ok) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  const int me = static_cast<int>(tile.thread_rank());
  auto even = cg::binary_partition(tile, me % 2 == 0);
  bool good = even.size() == 16 && even.thread_rank() == static_cast<unsigned>(me / 2);
  auto label = cg::labeled_partition(tile, me % 3);
  good = good && label.size() == (me % 3 == 2 ? 10 : 11) &&
         label.thread_rank() == static_cast<unsigned>(me / 3);
  good = good && label.meta_group_size() == 3 &&
         cg::reduce(label, 1, cg::plus<int>()) == static_cast<int>(label.size());
  cg::thread_group group = cg::tiled_partition(cg::this_thread_block(), 8);
  good = good && group.size() == 8 && group.thread_rank() == static_cast<unsigned>(me % 8);
  group.sync();
  ok[me] = good;
}

__global__ void copies(const float* in, float* out, int count) {
  extern __shared__ float staged[];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, staged, in + count * blockIdx.x, sizeof(float) * count);
  cg::wait(block);
  const int from = count - 1 - static_cast<int>(block.thread_rank());
  if (from >= 0) out[count * blockIdx.x + block.thread_rank()] = staged[from];
}

__global__ void of_grid(unsigned long long* out) {
  auto grid = cg::this_grid();
  if (grid.thread_rank() == 77) out[0] = grid.size(), out[1] = grid.thread_rank();
}

template <unsigned N>
void test_tiles(int* out, int* ok) {
  of_tiles<N><<<1, 128>>>(out, ok);
  FINISH();
  for (int i = 0; i < 128; ++i) EXPECT(ok[i] == 1 && out[i] == static_cast<int>(N) - 1);
}

int main() {
  int* out = make<int>(128);
  int* ok = make<int>(128);
  of_block<<<1, dim3(32, 3)>>>(out);
  FINISH();
  for (int i = 0; i < 96; ++i) EXPECT(out[i] == 95 - i + 10000 * (i / 32));
  EXPECT(out[96] == 96 + 32);
  test_tiles<1>(out, ok);
  test_tiles<2>(out, ok);
  test_tiles<4>(out, ok);
  test_tiles<8>(out, ok);
  test_tiles<16>(out, ok);
  test_tiles<32>(out, ok);
  of_some_lanes<<<1, 32>>>(ok);
  FINISH();
  for (int i = 0; i < 32; ++i) EXPECT(ok[i] == 1);
  of_partitions<<<1, 32>>>(ok);
  FINISH();
  for (int i = 0; i < 32; ++i) EXPECT(ok[i] == 1);
  float* in = make<float>(200);
  float* reversed = make<float>(200);
  for (int i = 0; i < 200; ++i) in[i] = static_cast<float>(i);
  copies<<<2, 128, 400>>>(in, reversed, 100);
  FINISH();
  for (int i = 0; i < 200; ++i)
    EXPECT(reversed[i] == static_cast<float>(i / 100 * 100 + 99 - i % 100));
  unsigned long long* grid = make<unsigned long long>(2);
  of_grid<<<dim3(2, 2), 32>>>(grid);
  FINISH();
  EXPECT(grid[0] == 128 && grid[1] == 77);
  cudaFree(out), cudaFree(ok), cudaFree(in), cudaFree(reversed), cudaFree(grid);
  std::puts("ok");
  return 0;
}
