/// __half and __half2: every conversion, and arithmetic against exact integers.
#include "check.cuh"

#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>

using Exact =
    __int128;  // of 2^-48: a product of halves, and its sum with a half, is a whole number

double value(unsigned bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 0x3FF;
  double magnitude =
      exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
  if (exponent == 31) magnitude = mantissa ? NAN : INFINITY;
  return bits & 0x8000 ? -magnitude : magnitude;
}
Exact exact(unsigned bits) { return static_cast<Exact>(std::ldexp(value(bits), 24)) << 24; }

/// The half that is nearest, of two the even one: found by bisection.
unsigned nearest(Exact x) {
  const unsigned sign = x < 0 ? 0x8000 : 0;
  if (x < 0) x = -x;
  unsigned low = 0, high = 0x7C00;  // infinity stands for 2^16
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (exact(middle) <= x ? low : high) = middle;
  }
  const Exact above = high == 0x7C00 ? Exact(65536) << 48 : exact(high);
  const Exact down = x - exact(low), up = above - x;
  const bool take_high = up < down || (up == down && (high & 1) == 0);
  return sign | (take_high ? high : low);
}

__host__ __device__ __half of_bits(unsigned bits) {
  return __ushort_as_half(static_cast<unsigned short>(bits));
}
__host__ __device__ unsigned bits_of(__half x) { return __half_as_ushort(x); }

__global__ void widen(float* out) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < 65536; i += gridDim.x * blockDim.x) {
    out[i] = __half2float(of_bits(i));
  }
}
__global__ void narrow(const float* in, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned* o = out + 5 * i;
  o[0] = bits_of(__float2half(in[i]));
  o[1] = bits_of(__float2half_rz(in[i])), o[2] = bits_of(__float2half_ru(in[i]));
  o[3] = bits_of(__float2half_rd(in[i])), o[4] = bits_of(__double2half(in[i]));
}

void test_conversions() {
  float* wide = make<float>(65536);
  widen<<<32, 64>>>(wide);
  FINISH();
  for (unsigned i = 0; i < 65536; ++i) {
    const double want = value(i);
    EXPECT(std::isnan(want) ? std::isnan(wide[i])
                            : want == wide[i] && std::signbit(want) == std::signbit(wide[i]));
  }
  // Around each number that lies between two halves.
  const int count = 3 * 0x7C00;
  float* in = make<float>(count);
  unsigned* out = make<unsigned>(5 * count);
  for (int i = 0; i < 0x7C00; ++i) {
    const double above = i == 0x7BFF ? 65536 : value(i + 1);
    const float middle = static_cast<float>((value(i) + above) / 2);
    in[3 * i] = std::nextafter(middle, 0.0f);
    in[3 * i + 1] = middle;
    in[3 * i + 2] = -std::nextafter(middle, INFINITY);
  }
  narrow<<<(count + 127) / 128, 128>>>(in, out, count);
  FINISH();
  for (int i = 0; i < count; ++i) {
    const unsigned low = i / 3, high = low + 1, *o = out + 5 * i;
    const unsigned want = i % 3 == 0 ? low : i % 3 == 1 ? (low & 1 ? high : low) : high | 0x8000;
    EXPECT(o[0] == want && o[4] == want);
    const bool negative = i % 3 == 2, last = high == 0x7C00;
    EXPECT(o[1] == (low | (negative ? 0x8000 : 0)));
    EXPECT(o[2] == (negative ? low | 0x8000 : high));
    EXPECT(o[3] == (negative ? high | 0x8000 : low));
    EXPECT(last || high < 0x7C00);
  }
  EXPECT(std::isnan(__half2float(__float2half(NAN))));
  EXPECT(bits_of(__float2half(1e6f)) == 0x7C00 && bits_of(__float2half(-INFINITY)) == 0xFC00);
  // Rounded once: as a float this would first become the tie between two halves.
  EXPECT(bits_of(__double2half(1.0 + std::ldexp(1, -11) + std::ldexp(1, -40))) == 0x3C01);
  EXPECT(bits_of(__double2half(std::ldexp(1, -25) + std::ldexp(1, -70))) == 1);
  cudaFree(wide), cudaFree(in), cudaFree(out);
}

__global__ void integers(unsigned* h, int* i, long long* l) {
  h[0] = bits_of(__int2half_rn(2049)), h[1] = bits_of(__int2half_rz(-2049)),
  h[2] = bits_of(__int2half_ru(2049));
  h[3] = bits_of(__int2half_rd(-2049)), h[4] = bits_of(__uint2half_rn(70000u)),
  h[5] = bits_of(__uint2half_rz(70000u));
  h[6] = bits_of(__ll2half_rn(-5LL)), h[7] = bits_of(__ull2half_rd(~0ULL)),
  h[8] = bits_of(__short2half_rn(-7));
  const __half x = __float2half(-2.5f), y = __float2half(3.5f);
  i[0] = __half2int_rn(x), i[1] = __half2int_rz(x), i[2] = __half2int_ru(x),
  i[3] = __half2int_rd(x);
  i[4] = __half2uint_rn(x), i[5] = __half2short_rn(y), i[6] = __half2ushort_rd(y),
  i[7] = __half2char_rz(y);
  i[8] = __half2int_rz(of_bits(0x7C00)), i[9] = __half2int_rz(of_bits(0x7E00));
  l[0] = __half2ll_rn(y), l[1] = static_cast<long long>(__half2ull_rz(y));
}
void test_integers() {
  unsigned* h = make<unsigned>(9);
  int* i = make<int>(10);
  long long* l = make<long long>(2);
  integers<<<1, 1>>>(h, i, l);
  FINISH();
  EXPECT(h[0] == 0x6800 && h[1] == 0xE800 && h[2] == 0x6801 && h[3] == 0xE801);
  EXPECT(h[4] == 0x7C00 && h[5] == 0x7BFF && h[6] == 0xC500 && h[7] == 0x7BFF && h[8] == 0xC700);
  EXPECT(i[0] == -2 && i[1] == -2 && i[2] == -2 && i[3] == -3 && i[4] == 0 && i[5] == 4 &&
         i[6] == 3);
  EXPECT(i[7] == 3 && i[8] == 2147483647 && i[9] == 0 && l[0] == 4 && l[1] == 3);
  cudaFree(h), cudaFree(i), cudaFree(l);
}

__global__ void arithmetic(const unsigned* in, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const __half a = of_bits(in[3 * i]), b = of_bits(in[3 * i + 1]), c = of_bits(in[3 * i + 2]);
  unsigned* o = out + 5 * i;
  o[0] = bits_of(__hadd(a, b)), o[1] = bits_of(__hsub(a, b)), o[2] = bits_of(__hmul(a, b));
  o[3] = bits_of(__hdiv(a, b)), o[4] = bits_of(__hfma(a, b, c));
}

bool agrees(unsigned got, unsigned want) { return got == want || ((got | want) & 0x7FFF) == 0; }

void test_arithmetic() {
  const int count = 4096;
  unsigned* in = make<unsigned>(3 * count);
  unsigned* out = make<unsigned>(5 * count);
  std::mt19937 random(11);
  for (int i = 0; i < 3 * count; ++i) {
    do in[i] = random() & 0xFFFF;
    while ((in[i] & 0x7C00) == 0x7C00);
    // Many of close exponents, where sums cancel; and of tiny numbers beside large ones.
    if (i / 3 % 2) in[i] = (in[i] & 0x83FF) | 0x3800 | (in[i] & 0x0400);
    if (i % 3 == 2 && i / 3 % 4 == 3) in[i] &= 0x83FF;
  }
  arithmetic<<<(count + 63) / 64, 64>>>(in, out, count);
  FINISH();
  for (int i = 0; i < count; ++i) {
    const unsigned a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2], *o = out + 5 * i;
    const Exact product =
        static_cast<Exact>(std::ldexp(value(a), 24)) * static_cast<Exact>(std::ldexp(value(b), 24));
    EXPECT(agrees(o[0], nearest(exact(a) + exact(b))));
    EXPECT(agrees(o[1], nearest(exact(a) - exact(b))));
    EXPECT(agrees(o[2], nearest(product)));
    EXPECT(agrees(o[4], nearest(product + exact(c))));
    if (value(b) != 0) {
      EXPECT(agrees(o[3], bits_of(__double2half(value(a) / value(b)))));
    }
  }
  cudaFree(in), cudaFree(out);
}

__global__ void comparisons(int* ok) {
  const __half one = __float2half(1.0f), two = __float2half(2.0f), none = of_bits(0x7E00);
  const __half2 a = __halves2half2(one, none), b = __halves2half2(two, one);
  int i = 0;
  ok[i++] = __heq(one, one) && !__heq(none, none) && __hequ(none, one) && !__hne(none, one) &&
            __hneu(none, one);
  ok[i++] = __hlt(one, two) && !__hlt(none, two) && __hltu(none, two) && __hge(two, one) &&
            !__hgeu(one, two);
  ok[i++] = __hlt2_mask(a, b) == 0x0000FFFFu && __hltu2_mask(a, b) == 0xFFFFFFFFu &&
            !__hblt2(a, b) && __hbltu2(a, b);
  ok[i++] = __low2float(__hlt2(a, b)) == 1.0f && __high2float(__hlt2(a, b)) == 0.0f;
  ok[i++] = __hisnan(none) && !__hisnan(one) && __high2float(__hisnan2(a)) == 1.0f;
  ok[i++] = __hisinf(of_bits(0x7C00)) != 0 && __hisinf(of_bits(0xFC00)) != 0 && __hisinf(one) == 0;
  ok[i++] = __half2float(__hmax(none, one)) == 1.0f && __hisnan(__hmax_nan(none, one)) &&
            __hisnan(__hmin(none, none));
  ok[i++] = bits_of(__hmin(of_bits(0x8000), of_bits(0))) == 0x8000 &&
            bits_of(__hmax(of_bits(0x8000), of_bits(0))) == 0;
  ok[i++] = bits_of(__hneg(one)) == 0xBC00 && bits_of(__habs(of_bits(0xBC00))) == 0x3C00;
  ok[i++] = __half2float(__hadd_sat(one, one)) == 1.0f &&
            __half2float(__hsub_sat(one, two)) == 0.0f &&
            __half2float(__hadd_sat(none, one)) == 0.0f;
  ok[i++] = __half2float(__hfma_relu(one, one, __float2half(-3.0f))) == 0.0f &&
            __half2float(__hfma_relu(two, two, one)) == 5.0f;
  const __half2 product =
      __hcmadd(__floats2half2_rn(1, 2), __floats2half2_rn(3, 4), __floats2half2_rn(10, 20));
  ok[i++] = __low2float(product) == 5.0f && __high2float(product) == 30.0f;
}

__global__ void pairs(int* ok, const __half2* stored) {
  const __half2 a = __floats2half2_rn(1.0f, 2.0f), b = __float2half2_rn(3.0f);
  int i = 0;
  ok[i++] = __low2float(__hadd2(a, b)) == 4.0f && __high2float(__hmul2(a, b)) == 6.0f;
  ok[i++] = __high2float(__hfma2(a, b, a)) == 8.0f && __low2float(__h2div(b, a)) == 3.0f;
  ok[i++] = __low2float(__lowhigh2highlow(a)) == 2.0f && __half2float(__high2half(a)) == 2.0f;
  ok[i++] = __high2float(__lows2half2(a, b)) == 3.0f && __low2float(__highs2half2(a, b)) == 2.0f;
  ok[i++] = __low2float(__high2half2(a)) == 2.0f && __half22float2(a).y == 2.0f &&
            __low2float(__hneg2(a)) == -1.0f;
  ok[i++] = (a + b == __floats2half2_rn(4.0f, 5.0f)) && (a != b) && (a < b) && !(a >= b);
  __half x = __float2half(2.0f);
  x += __float2half(1.0f), x *= x, ++x, x = -x;
  ok[i++] = __half2float(x) == -10.0f && x < __float2half(0.0f) && x == __float2half(-10.0f);
  const __half y = 2.5, z = 7;  // from numbers, and back
  ok[i++] = static_cast<float>(y) == 2.5f && static_cast<int>(z) == 7 && static_cast<bool>(z) &&
            static_cast<short>(y) == 2;
  ok[i++] = __half2float(hexp(__float2half(0.0f))) == 1.0f &&
            __half2float(hsqrt(__float2half(9.0f))) == 3.0f;
  ok[i++] = __half2float(hrcp(__float2half(4.0f))) == 0.25f &&
            __half2float(hrsqrt(__float2half(4.0f))) == 0.5f;
  ok[i++] = __half2float(hrint(__float2half(2.5f))) == 2.0f && __half2float(hceil(y)) == 3.0f &&
            __half2float(hfloor(y)) == 2.0f && __half2float(htrunc(__hneg(y))) == -2.0f;
  ok[i++] = __low2float(h2exp2(a)) == 2.0f && __high2float(h2log2(a)) == 1.0f;
  ok[i++] = fabsf(__half2float(hlog(y)) - 0.9163f) < 1e-3f &&
            fabsf(__half2float(hsin(y)) - 0.5985f) < 1e-3f;
  ok[i++] =
      bits_of(__short_as_half(__half_as_short(y))) == bits_of(y) && __low2float(__ldg(stored)) == 1.0f;
}

__global__ void together(__half* sum, __half2* sums, float* shuffled) {
  atomicAdd(sum, __float2half(0.5f));
  atomicAdd(sums, __floats2half2_rn(1.0f, 2.0f));
  const __half from = __shfl_xor_sync(~0u, __float2half(static_cast<float>(threadIdx.x)), 1);
  const __half2 pair = __shfl_sync(~0u, __float2half2_rn(static_cast<float>(threadIdx.x)), 3);
  shuffled[threadIdx.x] = __half2float(from) + 100 * __low2float(pair);
}

int main() {
  test_conversions();
  test_integers();
  test_arithmetic();
  int* ok = make<int>(32);
  comparisons<<<1, 1>>>(ok);
  FINISH();
  for (int i = 0; i < 12; ++i) EXPECT(ok[i] == 1 || (std::printf("comparisons %d: ", i), false));
  __half2* stored = make<__half2>(1);
  *stored = __floats2half2_rn(1.0f, 2.0f);
  pairs<<<1, 1>>>(ok, stored);
  FINISH();
  for (int i = 0; i < 14; ++i) EXPECT(ok[i] == 1 || (std::printf("pairs %d: ", i), false));
  __half* sum = make<__half>(2);
  __half2* sums = make<__half2>(1);
  float* shuffled = make<float>(32);
  together<<<1, 32>>>(sum, sums, shuffled);
  FINISH();
  EXPECT(__half2float(*sum) == 16.0f && __low2float(*sums) == 32.0f &&
         __high2float(*sums) == 64.0f);
  for (int i = 0; i < 32; ++i) EXPECT(shuffled[i] == static_cast<float>((i ^ 1) + 300));
  cudaFree(ok), cudaFree(stored), cudaFree(sum), cudaFree(sums), cudaFree(shuffled);
  std::puts("ok");
  return 0;
}
