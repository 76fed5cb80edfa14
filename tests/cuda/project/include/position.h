#define POSITION (blockIdx.x * blockDim.x + threadIdx.x)
