/// Bits and integers: counts, shifts over two words, high halves of products, averages.
#pragma once

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) {
  return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555U) | (x & 0x55555555U) << 1;
  x = (x >> 2 & 0x33333333U) | (x & 0x33333333U) << 2;
  x = (x >> 4 & 0x0F0F0F0FU) | (x & 0x0F0F0F0FU) << 4;
  return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}
/// The position of the n-th set bit at or above `base`, downwards for a negative n; ~0 for none.
inline unsigned __fns(unsigned mask, unsigned base, int n) {
  if (n == 0) return mask >> base & 1 ? base : 0xFFFFFFFFU;
  const int step = n < 0 ? -1 : 1;
  for (int at = static_cast<int>(base), left = n * step; at >= 0 && at < 32; at += step) {
    if (mask >> at & 1 && --left == 0) return static_cast<unsigned>(at);
  }
  return 0xFFFFFFFFU;
}

/// Three bits of each nibble of `selector` pick a byte of the eight; a GPU ignores the fourth.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(high) << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = selector >> 4 * i & 7;
    result |= (static_cast<unsigned>(bytes >> 8 * pick) & 0xFF) << 8 * i;
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(both << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(both >> (shift & 31));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}

// Products of the lower 24 bits, of which the lower 32 bits are kept.
inline int __mul24(int x, int y) {
  const auto low = [](int v) { return static_cast<int>(static_cast<unsigned>(v) << 8) >> 8; };
  return static_cast<int>(static_cast<unsigned>(low(x)) * static_cast<unsigned>(low(y)));
}
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xFFFFFF) * (y & 0xFFFFFF); }
inline int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
inline long long __mul64hi(long long x, long long y) {
  return static_cast<long long>(static_cast<__int128>(x) * y >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
inline int mul24(int x, int y) { return __mul24(x, y); }
inline unsigned umul24(unsigned x, unsigned y) { return __umul24(x, y); }
inline int mulhi(int x, int y) { return __mulhi(x, y); }
inline unsigned mulhi(unsigned x, unsigned y) { return __umulhi(x, y); }
inline unsigned mulhi(int x, unsigned y) { return __umulhi(static_cast<unsigned>(x), y); }
inline unsigned mulhi(unsigned x, int y) { return __umulhi(x, static_cast<unsigned>(y)); }
inline unsigned umulhi(unsigned x, unsigned y) { return __umulhi(x, y); }
inline long long mul64hi(long long x, long long y) { return __mul64hi(x, y); }
inline unsigned long long umul64hi(unsigned long long x, unsigned long long y) {
  return __umul64hi(x, y);
}

// |x - y| + z.
inline unsigned __sad(int x, int y, unsigned z) {
  const unsigned a = static_cast<unsigned>(x), b = static_cast<unsigned>(y);
  return (x > y ? a - b : b - a) + z;
}
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x > y ? x - y : y - x) + z; }
// Averages, that do not overflow; those with an r round upwards.
inline int __hadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y) >> 1); }
inline int __rhadd(int x, int y) {
  return static_cast<int>((static_cast<long long>(x) + y + 1) >> 1);
}
inline unsigned __uhadd(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<unsigned long long>(x) + y) >> 1);
}
inline unsigned __urhadd(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<unsigned long long>(x) + y + 1) >> 1);
}
