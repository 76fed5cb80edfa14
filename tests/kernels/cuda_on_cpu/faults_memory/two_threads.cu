// Two threads launch a kernel, one after the other; the second, whose stack is below the first's,
// starts a process as Python does: the sanitizer clears what is below the stack pointer.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

__global__ void add_one(int* x) {
  __syncthreads();
  atomicAdd(x, 1);
}

void* launch_and_start(void* x) {
  add_one<<<2, 32>>>(static_cast<int*>(x));
  cudaDeviceSynchronize();
  const pid_t child = vfork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return nullptr;
}

int main() {
  constexpr size_t bytes = 8 << 20;
  auto stacks = static_cast<char*>(mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  int* x;
  cudaMallocManaged(&x, sizeof(int));
  *x = 0;
  for (char* low : {stacks + bytes, stacks}) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, low, bytes);
    pthread_t thread;
    pthread_create(&thread, &attributes, launch_and_start, x);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
  }
  std::printf("%d\n", *x);
  cudaFree(x);
  return 0;
}
