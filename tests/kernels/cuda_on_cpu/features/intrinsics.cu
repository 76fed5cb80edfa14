/// Intrinsic functions: rounding modes, conversions that saturate, bits, bytes and halves of words.
#include "check.cuh"

#include <climits>
#include <cmath>
#include <cstring>
#include <random>

enum { rn, rz, ru, rd };

// Of one operation the four results, in the order of the enumeration.
#define MODES(to, name, ...) \
  to[rn] = name##_rn(__VA_ARGS__), to[rz] = name##_rz(__VA_ARGS__), \
  to[ru] = name##_ru(__VA_ARGS__), to[rd] = name##_rd(__VA_ARGS__)

struct Arithmetic {
  float f[7][4];
  double d[7][4];
};

__global__ void arithmetic(const double* x, const double* y, const double* z, Arithmetic* out) {
  const int i = threadIdx.x;
  const float a = static_cast<float>(x[i]), b = static_cast<float>(y[i]),
              c = static_cast<float>(z[i]);
  Arithmetic& o = out[i];
  MODES(o.f[0], __fadd, a, b);
  MODES(o.f[1], __fsub, a, b);
  MODES(o.f[2], __fmul, a, b);
  MODES(o.f[3], __fdiv, a, b);
  MODES(o.f[4], __frcp, a);
  MODES(o.f[5], __fsqrt, fabsf(a));
  MODES(o.f[6], __fmaf, a, b, c);
  MODES(o.d[0], __dadd, x[i], y[i]);
  MODES(o.d[1], __dsub, x[i], y[i]);
  MODES(o.d[2], __dmul, x[i], y[i]);
  MODES(o.d[3], __ddiv, x[i], y[i]);
  MODES(o.d[4], __drcp, x[i]);
  MODES(o.d[5], __dsqrt, fabs(x[i]));
  MODES(o.d[6], __fma, x[i], y[i], z[i]);
}

/// `down` and `up` are neighbours around the exact result, or both it; the others are one of them.
template <class T>
bool in_order(const T (&r)[4]) {
  const T to_zero = r[ru] > 0 ? r[rd] : r[ru];
  return (r[rd] == r[ru] || std::nextafter(r[rd], T(INFINITY)) == r[ru]) && r[rz] == to_zero &&
         (r[rn] == r[rd] || r[rn] == r[ru]);
}

/// The sign of an exact result less `r`: of a sum, a product, a quotient, a root.
template <class T>
T beyond(int op, T a, T b, T c, T r) {
  const auto less = [&](T x, T y) {  // x + y - r by the error of each step
    const T sum = x + y, shift = sum - x, error = (x - (sum - shift)) + (y - shift);
    return sum == r ? error : sum - r;
  };
  switch (op) {
    case 0: return less(a, b);
    case 1: return less(a, -b);
    case 2: return std::fma(a, b, -r);
    case 3: return std::fma(-r, b, a) / b;
    case 4: return std::fma(-r, a, T(1)) / a;
    case 5: return std::fma(-r, r, std::fabs(a));
    default: return T(c * 0);  // the three numbers of a fused operation: in_order() alone
  }
}

void test_directed_rounding() {
  constexpr int count = 64;
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(-2.0, 2.0);
  double* x = make<double>(count);
  double* y = make<double>(count);
  double* z = make<double>(count);
  for (int i = 0; i < count; ++i)
    x[i] = uniform(random), y[i] = uniform(random), z[i] = uniform(random);
  x[0] = 3.0, y[0] = 4.0;  // exact
  Arithmetic* out = make<Arithmetic>(count);
  arithmetic<<<1, count>>>(x, y, z, out);
  FINISH();
  int inexact = 0;
  for (int i = 0; i < count; ++i) {
    for (int op = 0; op < 7; ++op) {
      const float a = static_cast<float>(x[i]), b = static_cast<float>(y[i]);
      EXPECT(in_order(out[i].f[op]));
      EXPECT(in_order(out[i].d[op]));
      EXPECT(beyond(op, a, b, 0.0f, out[i].f[op][rd]) >= 0 &&
             beyond(op, a, b, 0.0f, out[i].f[op][ru]) <= 0);
      EXPECT(beyond(op, x[i], y[i], 0.0, out[i].d[op][rd]) >= 0);
      EXPECT(beyond(op, x[i], y[i], 0.0, out[i].d[op][ru]) <= 0);
      inexact += out[i].d[op][rd] != out[i].d[op][ru];
    }
  }
  EXPECT(inexact > 300);
  EXPECT(out[0].f[0][rd] == 7.0f && out[0].d[2][ru] == 12.0);
  cudaFree(x), cudaFree(y), cudaFree(z), cudaFree(out);
}

struct Converted {
  int i[4], from_double[4];
  unsigned u[4];
  long long ll[4];
  unsigned long long ull[4];
};
__global__ void to_integers(const double* x, Converted* out) {
  Converted& o = out[threadIdx.x];
  const float f = static_cast<float>(x[threadIdx.x]);
  MODES(o.i, __float2int, f);
  MODES(o.u, __float2uint, f);
  MODES(o.ll, __float2ll, f);
  MODES(o.ull, __float2ull, f);
  MODES(o.from_double, __double2int, x[threadIdx.x]);
}
void test_conversions_to_integers() {
  const double values[] = {2.5, -2.5, 3.7, 1e10, -1e10, 1e30, -1e30, NAN, 3.5, -0.3, INFINITY};
  constexpr int count = sizeof values / sizeof *values;
  double* x = make<double>(count);
  Converted* o = make<Converted>(count);
  std::memcpy(x, values, sizeof values);
  to_integers<<<1, count>>>(x, o);
  FINISH();
  EXPECT(o[0].i[rn] == 2 && o[0].i[rz] == 2 && o[0].i[ru] == 3 && o[0].i[rd] == 2);
  EXPECT(o[1].i[rn] == -2 && o[1].i[rz] == -2 && o[1].i[ru] == -2 && o[1].i[rd] == -3);
  EXPECT(o[2].from_double[rn] == 4 && o[2].from_double[rz] == 3 && o[8].i[rn] == 4);
  EXPECT(o[3].i[rn] == INT_MAX && o[3].u[rn] == UINT_MAX && o[3].ll[rn] == 10000000000LL);
  EXPECT(o[4].i[rn] == INT_MIN && o[4].u[rn] == 0 && o[4].ull[rn] == 0);
  EXPECT(o[5].ll[rz] == LLONG_MAX && o[5].ull[rz] == ULLONG_MAX && o[6].ll[rz] == LLONG_MIN);
  EXPECT(o[7].i[rn] == 0 && o[7].u[rz] == 0);
  EXPECT(o[9].u[rd] == 0 && o[9].i[rd] == -1 && o[10].from_double[rn] == INT_MAX);
  cudaFree(x), cudaFree(o);
}

__global__ void to_floats(float* f, double* d) {
  MODES((f), __int2float, 16777217);
  MODES((f + 4), __uint2float, 4294967295u);
  MODES((f + 8), __ll2float, -9223372036854775807LL);
  MODES((f + 12), __ull2float, 18446744073709551615ULL);
  MODES((f + 16), __double2float, 0.1);
  MODES((d), __ll2double, 9007199254740993LL);
  MODES((d + 4), __ull2double, 18446744073709551615ULL);
  d[8] = __int2double_rn(-5) + __uint2double_rn(7u);
  d[9] = __hiloint2double(__double2hiint(1.25), __double2loint(1.25));
  d[10] = __longlong_as_double(__double_as_longlong(-3.5));
  f[20] = __int_as_float(__float_as_int(1.5f)) + __uint_as_float(__float_as_uint(2.5f));
}
void test_conversions_to_floats() {
  float* f = make<float>(21);
  double* d = make<double>(11);
  to_floats<<<1, 1>>>(f, d);
  FINISH();
  EXPECT(f[rn] == 16777216.0f && f[rz] == 16777216.0f && f[ru] == 16777218.0f &&
         f[rd] == 16777216.0f);
  EXPECT(f[4 + rn] == 4294967296.0f && f[4 + rz] == 4294967040.0f && f[4 + ru] == 4294967296.0f);
  EXPECT(f[8 + rd] == -9223372036854775808.0f && f[8 + ru] == -9223371487098961920.0f);
  EXPECT(f[8 + rz] == f[8 + ru] && f[12 + ru] == 18446744073709551616.0f);
  EXPECT(f[12 + rd] == 18446742974197923840.0f && f[12 + rz] == f[12 + rd]);
  EXPECT(f[16 + rd] < 0.1 && f[16 + ru] > 0.1 && std::nextafter(f[16 + rd], 1.0f) == f[16 + ru]);
  EXPECT(d[rn] == 9007199254740992.0 && d[ru] == 9007199254740994.0 && d[rd] == d[rz]);
  EXPECT(d[4 + rd] == 18446744073709549568.0 && d[4 + ru] == 18446744073709551616.0);
  EXPECT(d[8] == 2.0 && d[9] == 1.25 && d[10] == -3.5 && f[20] == 4.0f);
  cudaFree(f), cudaFree(d);
}

__global__ void bits(int* ok) {
  int i = 0;
  ok[i++] = __popc(0xF0F0u) == 8 && __popcll(~0ULL) == 64 && __clz(1) == 31 && __clz(0) == 32;
  ok[i++] = __clzll(1) == 63 && __clzll(0) == 64 && __ffs(0) == 0 && __ffs(8) == 4 &&
            __ffsll(1LL << 40) == 41;
  ok[i++] = __brev(1u) == 0x80000000u && __brev(0x12345678u) == 0x1E6A2C48u &&
            __brevll(1ULL) == 1ULL << 63;
  ok[i++] = __byte_perm(0x33221100u, 0x77665544u, 0x7410u) == 0x77441100u;
  ok[i++] = __byte_perm(0x00008000u, 0, 0x9999u) == 0x80808080u;
  ok[i++] = __funnelshift_l(0x80000000u, 1u, 1) == 3u && __funnelshift_r(2u, 1u, 1) == 0x80000001u;
  ok[i++] = __funnelshift_l(7u, 9u, 32) == 9u && __funnelshift_lc(7u, 9u, 32) == 7u &&
            __funnelshift_rc(7u, 9u, 40) == 9u;
  ok[i++] = __sad(3, -4, 10u) == 17u && __usad(3u, 8u, 1u) == 6u && __mul24(-3, 5) == -15;
  ok[i++] =
      __umul24(0xFF000003u, 5u) == 15u && __mulhi(1 << 30, 8) == 2 && __umulhi(~0u, ~0u) == ~0u - 1;
  ok[i++] = __mul64hi(-1LL, 2LL) == -1 && __umul64hi(~0ULL, 2ULL) == 1;
  ok[i++] = __hadd(INT_MAX, INT_MAX) == INT_MAX && __hadd(-3, 0) == -2 && __rhadd(1, 2) == 2;
  ok[i++] = __uhadd(~0u, 1u) == 0x80000000u && __urhadd(1u, 2u) == 2u;
  ok[i++] = __fns(0xF0u, 0, 2) == 5u && __fns(0xF0u, 31, -1) == 7u && __fns(0xF0u, 5, 0) == 5u &&
            __fns(1u, 0, 2) == ~0u;
  ok[i++] = fabsf(__expf(1.0f) - 2.7182817f) < 1e-5f && fabsf(__logf(2.0f) - 0.6931472f) < 1e-5f;
  ok[i++] = fabsf(__sinf(0.5f) - 0.4794255f) < 1e-5f && __fdividef(6.0f, 3.0f) == 2.0f;
  ok[i++] = __frsqrt_rn(4.0f) == 0.5f && fabsf(__exp10f(2.0f) - 100.0f) < 1e-3f;
}

__global__ void lanes(int* ok) {
  int i = 0;
  const unsigned a = 0x7FFF0001u, b = 0x0001FFFFu;
  ok[i++] = __vadd2(a, b) == 0x80000000u && __vaddss2(a, b) == 0x7FFF0000u &&
            __vaddus2(a, b) == 0x8000FFFFu;
  ok[i++] = __vsub2(b, a) == 0x8002FFFEu && __vsubss2(0x80000000u, 0x00010001u) == 0x8000FFFFu;
  ok[i++] = __vsubus4(0x01020304u, 0x02020202u) == 0x00000102u &&
            __vadd4(0xFF01FF01u, 0x01010101u) == 0x00020002u;
  ok[i++] = __vabs2(0x8000FFFFu) == 0x80000001u && __vabsss2(0x8000FFFFu) == 0x7FFF0001u;
  ok[i++] = __vabsdiffu4(0x01FF0305u, 0x0300FF05u) == 0x02FFFC00u &&
            __vabsdiffs2(0xFFFF0002u, 0x00010001u) == 0x00020001u;
  ok[i++] = __vmaxs4(0x80017F00u, 0x00000000u) == 0x00017F00u &&
            __vmaxu4(0x80017F00u, 0x01010101u) == 0x80017F01u;
  ok[i++] = __vminu2(0x00010005u, 0x00020003u) == 0x00010003u &&
            __vmins2(0xFFFF0005u, 0x00020003u) == 0xFFFF0003u;
  ok[i++] = __vcmpeq4(0x01020304u, 0x01FF03FFu) == 0xFF00FF00u &&
            __vcmpgts2(0x0001FFFFu, 0) == 0xFFFF0000u;
  ok[i++] = __vcmpltu4(0x01020304u, 0x02020202u) == 0xFF000000u &&
            __vsetne2(0x00010002u, 0x00010003u) == 1u;
  ok[i++] = __vavgu4(0x01020304u, 0x02030405u) == 0x02030405u &&
            __vhaddu4(0x01020304u, 0x02030405u) == 0x01020304u;
  ok[i++] = __vsadu4(0x01020304u, 0x00000000u) == 10u && __vsads2(0xFFFF0001u, 0x00010001u) == 2u;
  ok[i++] = __vneg2(0x0001FFFFu) == 0xFFFF0001u && __vnegss4(0x80010203u) == 0x7FFFFEFDu;
  ok[i++] = __dp4a(0x01020304, 0x01010101, 5) == 15 && __dp4a(0xFF000001u, 0x01000001u, 1u) == 257u;
  ok[i++] = __dp4a(-1, 0x01010101, 0) == -4 && __dp2a_lo(0x00020003, 0x0405, 1) == 24;
  ok[i++] = __dp2a_hi(0x00020003, 0x04050000, 1) == 24;
  ok[i++] = __viaddmax_s32(3, 4, 5) == 7 && __vimax3_s32(1, 9, 2) == 9 &&
            __viaddmin_s32_relu(-9, 1, 3) == 0;
  ok[i++] = __vimax3_s16x2(0x0001FFFFu, 0x00020001u, 0x00000003u) == 0x00020003u;
  bool first = false;
  ok[i++] = __vibmax_s32(4, 3, &first) == 4 && first;
}

__global__ void caches(int* x) {
  x[1] = __ldg(&x[0]) + __ldca(&x[0]) + __ldcg(&x[0]) + __ldcs(&x[0]);
  __stcg(&x[2], 7);
  __stwt(&x[3], 8);
  __stcs(&x[4], 9);
}

int main() {
  test_directed_rounding();
  test_conversions_to_integers();
  test_conversions_to_floats();
  int* ok = make<int>(32);
  bits<<<1, 1>>>(ok);
  FINISH();
  for (int i = 0; i < 16; ++i) EXPECT(ok[i] == 1 || (std::printf("bits %d: ", i), false));
  lanes<<<1, 1>>>(ok);
  FINISH();
  for (int i = 0; i < 18; ++i) EXPECT(ok[i] == 1 || (std::printf("lanes %d: ", i), false));
  ok[0] = 5;
  caches<<<1, 1>>>(ok);
  FINISH();
  EXPECT(ok[1] == 20 && ok[2] == 7 && ok[3] == 8 && ok[4] == 9);
  cudaFree(ok);
  std::puts("ok");
  return 0;
}
