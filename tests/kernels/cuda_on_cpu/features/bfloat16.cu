/// __nv_bfloat16 and __nv_bfloat162: every conversion, and operations that round once.
#include "check.cuh"

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>

double value(unsigned bits) {
  const uint32_t wide = bits << 16;
  float x;
  std::memcpy(&x, &wide, sizeof x);
  return x;
}

__host__ __device__ __nv_bfloat16 of_bits(unsigned bits) {
  return __ushort_as_bfloat16(static_cast<unsigned short>(bits));
}
__host__ __device__ unsigned bits_of(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }

__global__ void widen(float* out) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < 65536; i += gridDim.x * blockDim.x) {
    out[i] = __bfloat162float(of_bits(i));
  }
}
__global__ void narrow(const float* in, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned* o = out + 5 * i;
  o[0] = bits_of(__float2bfloat16(in[i]));
  o[1] = bits_of(__float2bfloat16_rz(in[i])), o[2] = bits_of(__float2bfloat16_ru(in[i]));
  o[3] = bits_of(__float2bfloat16_rd(in[i])), o[4] = bits_of(__double2bfloat16(in[i]));
}

void test_conversions() {
  float* wide = make<float>(65536);
  widen<<<32, 64>>>(wide);
  FINISH();
  for (unsigned i = 0; i < 65536; ++i) {
    EXPECT(std::isnan(value(i)) ? std::isnan(wide[i]) : value(i) == wide[i]);
  }
  const int each = 0x7F80, count = 3 * each;
  float* in = make<float>(count);
  unsigned* out = make<unsigned>(5 * count);
  for (int i = 0; i < each; ++i) {  // below, at and above each number that lies between two
    for (int k = 0; k < 3; ++k) {
      const uint32_t bits = (static_cast<uint32_t>(i) << 16) + 0x7FFF + k;
      std::memcpy(&in[3 * i + k], &bits, sizeof bits);
    }
    in[3 * i + 2] = -in[3 * i + 2];
  }
  narrow<<<(count + 127) / 128, 128>>>(in, out, count);
  FINISH();
  for (int i = 0; i < count; ++i) {
    const unsigned low = i / 3, high = low + 1, *o = out + 5 * i;
    const bool negative = i % 3 == 2;
    const unsigned want = i % 3 == 0 ? low : i % 3 == 1 ? (low & 1 ? high : low) : high | 0x8000;
    EXPECT(o[0] == want && o[4] == want);
    EXPECT(o[1] == (low | (negative ? 0x8000 : 0)));
    EXPECT(o[2] == (negative ? low | 0x8000 : high));
    EXPECT(o[3] == (negative ? high | 0x8000 : low));
  }
  EXPECT(std::isnan(__bfloat162float(__float2bfloat16(NAN))));
  EXPECT(bits_of(__float2bfloat16(3.4e38f)) == 0x7F80);
  EXPECT(bits_of(__double2bfloat16(1.0 + std::ldexp(1, -8) + std::ldexp(1, -40))) == 0x3F81);
  cudaFree(wide), cudaFree(in), cudaFree(out);
}

__global__ void arithmetic(const unsigned* in, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const __nv_bfloat16 a = of_bits(in[3 * i]), b = of_bits(in[3 * i + 1]),
                      c = of_bits(in[3 * i + 2]);
  unsigned* o = out + 5 * i;
  o[0] = bits_of(__hadd(a, b)), o[1] = bits_of(__hsub(a, b)), o[2] = bits_of(__hmul(a, b));
  o[3] = bits_of(__hdiv(a, b)), o[4] = bits_of(__hfma(a, b, c));
}

/// Nearest to a + b, which one `long double` holds: exponents are close enough.
unsigned nearest(long double x) {
  const unsigned sign = x < 0 ? 0x8000 : 0;
  if (x < 0) x = -x;
  unsigned low = 0, high = 0x7F80;
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (value(middle) <= x ? low : high) = middle;
  }
  const long double above = high == 0x7F80 ? std::ldexp(1.0L, 128) : value(high);
  const long double down = x - value(low), up = above - x;
  return sign | (up < down || (up == down && (high & 1) == 0) ? high : low);
}

void test_arithmetic() {
  const int count = 4096;
  unsigned* in = make<unsigned>(3 * count);
  unsigned* out = make<unsigned>(5 * count);
  std::mt19937 random(13);
  for (int i = 0; i < count; ++i) {
    const unsigned around = i % 2 ? 127 : 64;  // products of 64 are among the least numbers
    for (int k = 0; k < 3; ++k) {
      const unsigned exponent =
          k == 2 ? 2 * around - 127 + random() % 16 : around - 4 + random() % 8;
      in[3 * i + k] = (random() & 0x807F) | (exponent > 254 ? 0 : exponent) << 7;
    }
  }
  arithmetic<<<(count + 63) / 64, 64>>>(in, out, count);
  FINISH();
  for (int i = 0; i < count; ++i) {
    const long double a = value(in[3 * i]), b = value(in[3 * i + 1]), c = value(in[3 * i + 2]);
    const unsigned* o = out + 5 * i;
    EXPECT((o[0] & 0x7FFF) == (nearest(a + b) & 0x7FFF) &&
           (o[1] & 0x7FFF) == (nearest(a - b) & 0x7FFF));
    EXPECT(o[2] == nearest(a * b) || (o[2] & 0x7FFF) == 0);
    EXPECT((o[4] & 0x7FFF) == (nearest(a * b + c) & 0x7FFF));
#if defined(CUDA_ON_CPU)  // a GPU divides by way of a float, and rounds twice
    EXPECT((o[3] & 0x7FFF) == (nearest(a / b) & 0x7FFF));
#endif
  }
  cudaFree(in), cudaFree(out);
}

__global__ void several(int* ok, const __nv_bfloat16* stored) {
  const __nv_bfloat16 one = __float2bfloat16(1.0f), two = 2.0f, none = of_bits(0x7FC0);
  const __nv_bfloat162 a = __floats2bfloat162_rn(1.0f, 2.0f), b = __float2bfloat162_rn(3.0f);
  int i = 0;
  ok[i++] = __heq(one, one) && !__heq(none, none) && __hequ(none, one) && __hneu(none, one) &&
            !__hne(none, one);
  ok[i++] = __hlt2_mask(a, b) == ~0u && __hbgt2(b, a) && __low2float(__hge2(a, b)) == 0.0f &&
            __hisnan(none);
  ok[i++] = __bfloat162float(__hmax(none, one)) == 1.0f && __hisnan(__hmax_nan(one, none));
  ok[i++] = __low2float(__hadd2(a, b)) == 4.0f && __high2float(__hfma2(a, b, a)) == 8.0f &&
            __low2float(__h2div(b, a)) == 3.0f;
  ok[i++] = __bfloat1622float2(a).y == 2.0f && __bfloat162float(__high2bfloat16(a)) == 2.0f &&
            __low2float(__bfloat162bfloat162(two)) == 2.0f;
  ok[i++] = __bfloat162int_rn(__float2bfloat16(-2.5f)) == -2 &&
            __bfloat162int_rd(__float2bfloat16(-2.5f)) == -3;
  ok[i++] = bits_of(__int2bfloat16_rn(257)) == 0x4380 && bits_of(__int2bfloat16_ru(257)) == 0x4381;
  ok[i++] = bits_of(__ull2bfloat16_rz(~0ULL)) == 0x5F7F &&
            __bfloat162ll_rz(__float2bfloat16(-7.9f)) == -7;
  __nv_bfloat16 x = two;
  x += one, x *= x, --x, x = -x;
  ok[i++] = static_cast<float>(x) == -8.0f && x < one && x == __float2bfloat16(-8.0f) &&
            static_cast<int>(x) == -8;
  ok[i++] = (a + b == __floats2bfloat162_rn(4.0f, 5.0f)) && a != b;
  ok[i++] = __bfloat162float(hexp2(two)) == 4.0f &&
            __bfloat162float(hrsqrt(__float2bfloat16(4.0f))) == 0.5f;
  ok[i++] = __bfloat162float(hceil(__float2bfloat16(1.5f))) == 2.0f &&
            __high2float(h2sqrt(__float2bfloat162_rn(9.0f))) == 3.0f;
  ok[i++] =
      bits_of(__habs(__hneg(one))) == 0x3F80 && __bfloat162float(__hadd_sat(one, one)) == 1.0f;
  ok[i++] = __bfloat162float(__ldg(stored)) == 2.0f && __half2float(static_cast<__half>(two)) == 2.0f;
}

__global__ void together(__nv_bfloat16* sum, __nv_bfloat162* sums, float* shuffled) {
  atomicAdd(sum, __float2bfloat16(0.5f));
  atomicAdd(sums, __floats2bfloat162_rn(1.0f, 2.0f));
  shuffled[threadIdx.x] =
      __bfloat162float(__shfl_down_sync(~0u, __float2bfloat16(static_cast<float>(threadIdx.x)), 1));
}

int main() {
  test_conversions();
  test_arithmetic();
  int* ok = make<int>(16);
  __nv_bfloat16* stored = make<__nv_bfloat16>(1);
  *stored = __float2bfloat16(2.0f);
  several<<<1, 1>>>(ok, stored);
  FINISH();
  for (int i = 0; i < 14; ++i) EXPECT(ok[i] == 1 || (std::printf("several %d: ", i), false));
  __nv_bfloat16* sum = make<__nv_bfloat16>(2);
  __nv_bfloat162* sums = make<__nv_bfloat162>(1);
  float* shuffled = make<float>(32);
  together<<<1, 32>>>(sum, sums, shuffled);
  FINISH();
  EXPECT(__bfloat162float(*sum) == 16.0f && __high2float(*sums) == 64.0f);
  for (int i = 0; i < 31; ++i) EXPECT(shuffled[i] == static_cast<float>(i + 1));
  cudaFree(ok), cudaFree(sum), cudaFree(sums), cudaFree(shuffled);
  std::puts("ok");
  return 0;
}
