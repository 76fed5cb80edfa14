// How many operations a second: chains that the compiler can neither shorten nor leave out.
constexpr int block = 256, chains = 8;

__global__ void fused_multiply_adds(float* y, const float* x, int n, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float a[chains];
  for (int k = 0; k < chains; ++k) a[k] = x[i] + float(k);
  for (int round = 0; round < rounds; ++round)
    for (int k = 0; k < chains; ++k) a[k] = fmaf(a[k], 0.999f, 0.5f);
  float sum = 0;
  for (int k = 0; k < chains; ++k) sum += a[k];
  y[i] = sum;
}

// __expf is a multiplication and MUFU.EX2.
__global__ void exponentials(float* y, const float* x, int n, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float a[chains];
  for (int k = 0; k < chains; ++k) a[k] = x[i] + float(k) * 0.01f;
  for (int round = 0; round < rounds; ++round)
    for (int k = 0; k < chains; ++k) a[k] = __expf(-a[k]);
  float sum = 0;
  for (int k = 0; k < chains; ++k) sum += a[k];
  y[i] = sum;
}

void throughput(float* y, const float* x, int n, int rounds, bool exponential,
                cudaStream_t stream) {
  if (n == 0) return;
  const int blocks = (n - 1) / block + 1;
  if (exponential) {
    exponentials<<<blocks, block, 0, stream>>>(y, x, n, rounds);
  } else {
    fused_multiply_adds<<<blocks, block, 0, stream>>>(y, x, n, rounds);
  }
}
