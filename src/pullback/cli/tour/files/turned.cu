// y is x the other way round, through shared memory. Something is missing.
__global__ void turn(float* y, const float* x, int n) {
  __shared__ float s[1024];
  int t = threadIdx.x;
  s[t] = x[t];
  y[t] = s[n - 1 - t];
}

void launch_turn(float* y, const float* x, int n) { turn<<<1, n>>>(y, x, n); }
