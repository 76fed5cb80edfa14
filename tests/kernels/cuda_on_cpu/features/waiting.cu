/// Blocks that wait for other blocks, in grids of many more than run at once.
#include "check.cuh"

#include <filesystem>

/// How many threads of the operating system there are, where they run the blocks.
__device__ int threads_of_system() {
#ifdef CUDA_ON_CPU
  int count = 0;
  namespace fs = std::filesystem;
  for ([[maybe_unused]] const auto& each : fs::directory_iterator("/proc/self/task")) ++count;
  return count;
#else
  return 1;
#endif
}

/// A row begins when the one above it is done: one lock each, asked by an atomic that changes nothing.
__global__ void rows(int* done, float* y, int* most) {
  const int column = blockIdx.x + gridDim.x * blockIdx.z, row = blockIdx.y;
  int* const lock = done + column * gridDim.y + row;
  float* const here = y + (size_t(column) * gridDim.y + row) * blockDim.x;
  if (row > 0) {
    if (threadIdx.x == 0) {
      while (atomicAdd(lock - 1, 0) == 0) {
      }
      __threadfence();
    }
    __syncthreads();
  }
  const int beside = (threadIdx.x + 1) % blockDim.x;
  here[threadIdx.x] = row > 0 ? here[beside - int(blockDim.x)] + 1 : threadIdx.x;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (blockIdx.x == 0) atomicMax(most, threads_of_system());
    atomicExch(lock, 1);
  }
}

void test_rows(dim3 grid, int block) {
  const int count = grid.x * grid.y * grid.z;
  int *done = make<int>(count), *most = make<int>(1);
  float* y = make<float>(size_t(count) * block);
  rows<<<grid, block>>>(done, y, most);
  FINISH();
  for (int column = 0; column < int(grid.x * grid.z); ++column)
    for (int t = 0; t < block; ++t) {
      const int last = grid.y - 1;
      EXPECT(y[(size_t(column) * grid.y + last) * block + t] == (t + last) % block + last);
    }
  EXPECT(*most < 12);
  cudaFree(done), cudaFree(most), cudaFree(y);
}

/// Tiles that wait for the one to the left and the one above, at flags that are read with a fence.
__global__ void wave(volatile int* ready, int* paths) {
  const int x = blockIdx.x, y = blockIdx.y, width = gridDim.x;
  if (threadIdx.x > 0) return;
  while (x > 0 && !ready[y * width + x - 1]) __threadfence();
  while (y > 0 && !ready[(y - 1) * width + x]) __threadfence();
  __threadfence();
  const int left = x > 0 ? paths[y * width + x - 1] : 0, above = y > 0 ? paths[(y - 1) * width + x] : 0;
  paths[y * width + x] = x + y > 0 ? left + above : 1;
  __threadfence();
  ready[y * width + x] = 1;
}

void test_wave(int width, int height) {
  int *ready = make<int>(width * height), *paths = make<int>(width * height);
  wave<<<dim3(width, height), 32>>>(ready, paths);
  FINISH();
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      const int left = x > 0 ? paths[y * width + x - 1] : 0, above = y > 0 ? paths[(y - 1) * width + x] : 0;
      EXPECT(paths[y * width + x] == (x + y > 0 ? left + above : 1));
    }
  cudaFree(ready), cudaFree(paths);
}

/// A barrier over the grid, by hand: all blocks have to have begun.
__global__ void in_step(int* arrived, int* steps, int count) {
  for (int i = 0; i < count; ++i) {
    if (threadIdx.x == 0) {
      atomicAdd(steps + i, 1);
      __threadfence();
      atomicAdd(arrived, 1);
      while (atomicAdd(arrived, 0) < int(gridDim.x) * (i + 1)) {
      }
      if (atomicAdd(steps + i, 0) != int(gridDim.x)) atomicExch(steps, -1);
    }
    __syncthreads();
  }
}

/// Each waits for the one that begins after it.
__global__ void backwards(int* done) {
  if (threadIdx.x > 0) return;
  const int next = blockIdx.x + 1;
  while (next < gridDim.x && atomicAdd(done + next, 0) == 0) {
  }
  atomicExch(done + blockIdx.x, next < gridDim.x ? atomicAdd(done + next, 0) + 1 : 1);
}

void test_all_at_once(int blocks) {
  int *arrived = make<int>(1), *steps = make<int>(8), *done = make<int>(blocks);
  in_step<<<blocks, 64>>>(arrived, steps, 8);
  FINISH();
  for (int i = 0; i < 8; ++i) EXPECT(steps[i] == blocks);
  backwards<<<blocks, 32>>>(done);
  FINISH();
  for (int i = 0; i < blocks; ++i) EXPECT(done[i] == blocks - i);
  cudaFree(arrived), cudaFree(steps), cudaFree(done);
}

int main() {
  test_rows({4, 30, 6}, 128);
  test_rows({1, 90, 1}, 64);
  test_rows({4, 30, 64}, 32);
  test_wave(12, 16);
#ifndef CUDA_ON_CPU_RACE  // it runs one block at a time, to the end
  test_all_at_once(40);
#endif
  std::puts("ok");
  return 0;
}
