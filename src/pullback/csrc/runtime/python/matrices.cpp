#include "matrices.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace pullback {

// Below that its call takes longer, as in `bind/dense/matrices.py`.
constexpr int64_t least = 32, many = int64_t{1} << 21;

static bool is_large(const at::Tensor& a, const at::Tensor& b) {
  const int64_t rows = a.size(0), inner = a.size(1), columns = b.size(1);
  return std::min({rows, inner, columns}) >= least && rows * inner * columns >= many;
}

/// By the operation that `torch.compile` calls. Boxed: its C++ types are PyTorch's own affair.
static at::Tensor multiply_by_onednn(const at::Tensor& a, const at::Tensor& b) {
  static const c10::OperatorHandle linear =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "");
  at::Tensor weight = b.t();
  // It has fast loops for a second matrix without gaps alone.
  if (!b.is_contiguous()) weight = weight.contiguous();
  torch::jit::Stack stack;
  torch::jit::push(stack, a, weight, c10::IValue(), "none", c10::List<std::optional<at::Scalar>>(),
                   "");
  linear.callBoxed(stack);
  return stack.front().toTensor();
}

void multiply(const Target& target, const at::Tensor& a, const at::Tensor& b, bool by_onednn) {
  const auto& [to, adds, scale] = target;
  if (!by_onednn || !is_large(a, b)) {
    at::Tensor written = to;
    at::addmm_out(written, to, a, b, adds ? 1 : 0, scale);
    return;
  }
  const at::Tensor found = multiply_by_onednn(a, b);
  if (adds) {
    to.add_(found, scale);
  } else {
    to.copy_(found);
    if (scale != 1) to.mul_(scale);
  }
}

bool multiplies_halves() {
  const at::BFloat16 ones[2] = {1.0f, 1.0f};
  float found = 0;
  try {
    at::native::cpublas::brgemm(1, 1, 2, 2, 1, 1, false, ones, ones, &found, true);
    at::native::cpublas::brgemm_release(true);
  } catch (const std::exception&) {
    return false;  // said by PyTorch, where a processor or a build has no such products
  }
  return found == 2;
}

/// Writes rows two by two: each element beside the one below it.
static void write_pairs(const uint16_t* rows, int64_t step, int64_t down, int64_t across,
                        uint32_t* to) {
  for (int64_t row = 0; row < down; row += 2, to += across) {
    const uint16_t *const one = rows + row * step, *const other = one + step;
    if (row + 1 == down) {
      for (int64_t k = 0; k < across; ++k) to[k] = one[k];
      return;
    }
    int64_t k = 0;
#ifdef __SSE2__
    for (; k + 8 <= across; k += 8) {
      const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(one + k));
      const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(other + k));
      auto* const both = reinterpret_cast<__m128i*>(to + k);
      _mm_storeu_si128(both, _mm_unpacklo_epi16(a, b));
      _mm_storeu_si128(both + 1, _mm_unpackhi_epi16(a, b));
    }
#endif
    for (; k < across; ++k) to[k] = one[k] | uint32_t{other[k]} << 16;
  }
}

#ifdef __SSE2__
/// Writes four columns of four pairs as rows.
static void turn_four_pairs(const uint16_t* columns, int64_t step, uint32_t* to, int64_t next) {
  __m128i a[4], b[4];
  for (int k = 0; k < 4; ++k) {
    a[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(columns + k * step));
  }
  for (int k = 0; k < 2; ++k) {
    b[k] = _mm_unpacklo_epi32(a[2 * k], a[2 * k + 1]);
    b[k + 2] = _mm_unpackhi_epi32(a[2 * k], a[2 * k + 1]);
  }
  for (int k = 0; k < 2; ++k) {
    auto* const row = to + 2 * k * next;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row), _mm_unpacklo_epi64(b[2 * k], b[2 * k + 1]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + next),
                     _mm_unpackhi_epi64(b[2 * k], b[2 * k + 1]));
  }
}
#endif

/// Puts elements of columns together two by two, as rows: of an odd number the last is beside 0.
static void write_pairs_of_columns(const uint16_t* columns, int64_t step, int64_t down,
                                   int64_t across, uint32_t* to) {
  constexpr int64_t line = 16;  // columns whose pairs fill a line of the cache
  for (int64_t first = 0; first < across; first += line) {
    const int64_t last = std::min(first + line, across);
    int64_t row = 0;
#ifdef __SSE2__
    for (; row + 8 <= down && last - first == line; row += 8) {
      for (int64_t k = first; k < last; k += 4) {
        turn_four_pairs(columns + k * step + row, step, to + row / 2 * across + k, across);
      }
    }
#endif
    for (; row < down; row += 2) {
      for (int64_t k = first; k < last; ++k) {
        const uint16_t* const from = columns + k * step + row;
        to[row / 2 * across + k] = from[0] | (row + 1 < down ? uint32_t{from[1]} << 16 : 0);
      }
    }
  }
}

#ifdef __SSE2__
/// Writes eight columns of eight elements as rows.
static void turn_eight(const uint16_t* columns, int64_t step, uint16_t* to, int64_t next) {
  __m128i a[8], b[8];
  for (int k = 0; k < 8; ++k) {
    a[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(columns + k * step));
  }
  for (int k = 0; k < 4; ++k) {
    b[2 * k] = _mm_unpacklo_epi16(a[2 * k], a[2 * k + 1]);
    b[2 * k + 1] = _mm_unpackhi_epi16(a[2 * k], a[2 * k + 1]);
  }
  for (int k = 0; k < 2; ++k) {
    for (int half = 0; half < 2; ++half) {
      a[4 * k + 2 * half] = _mm_unpacklo_epi32(b[4 * k + half], b[4 * k + 2 + half]);
      a[4 * k + 2 * half + 1] = _mm_unpackhi_epi32(b[4 * k + half], b[4 * k + 2 + half]);
    }
  }
  for (int k = 0; k < 4; ++k) {
    b[2 * k] = _mm_unpacklo_epi64(a[k], a[4 + k]);
    b[2 * k + 1] = _mm_unpackhi_epi64(a[k], a[4 + k]);
  }
  for (int k = 0; k < 8; ++k) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + k * next), b[k]);
}
#endif

/// Writes the columns of a matrix as rows.
static void write_turned(const uint16_t* columns, int64_t step, int64_t rows, int64_t inner,
                         uint16_t* to) {
  for (int64_t first = 0; first < rows; first += 8) {
    for (int64_t k = 0; k < inner; k += 8) {
      const int64_t down = std::min<int64_t>(8, rows - first),
                    across = std::min<int64_t>(8, inner - k);
      const uint16_t* from = columns + k * step + first;
      uint16_t* const own = to + first * inner + k;
#ifdef __SSE2__
      if (down == 8 && across == 8) {
        turn_eight(from, step, own, inner);
        continue;
      }
#endif
      for (int64_t j = 0; j < across; ++j, from += step) {
        for (int64_t i = 0; i < down; ++i) own[i * inner + j] = from[i];
      }
    }
  }
}

void multiply_halves(const Target& target, const at::Tensor& a, const at::Tensor& b,
                     HalvesMemory& memory) {
  const auto& [to, adds, scale] = target;
  const int64_t rows = a.size(0), inner = a.size(1), columns = to.size(1);
  if (inner == 0) {
    if (!adds) to.zero_();
    return;
  }
  const auto *first = static_cast<const uint16_t*>(a.const_data_ptr()),
             *second = static_cast<const uint16_t*>(b.const_data_ptr());
  // Of one row the next one is nowhere.
  const auto next = [&](const at::Tensor& of, int64_t least) {
    return rows == 1 ? least : of.stride(0);
  };
  int64_t step_a = next(a, inner);
  if (a.stride(1) != 1 && inner > 1) {
    memory.turned.resize(static_cast<size_t>(rows * inner));
    write_turned(first, a.stride(1), rows, inner, memory.turned.data());
    first = memory.turned.data();
    step_a = inner;
  }
  memory.pairs.resize(static_cast<size_t>((inner + 1) / 2 * columns));
  if (b.stride(0) == 1 && b.stride(1) != 1) {
    write_pairs_of_columns(second, b.stride(1), inner, columns, memory.pairs.data());
  } else {
    write_pairs(second, b.stride(0), inner, columns, memory.pairs.data());
  }
  const bool is_direct = scale == 1;
  const at::Tensor found = is_direct ? to : at::empty({rows, columns}, to.options());
  at::native::cpublas::brgemm(rows, columns, inner, step_a, columns, next(found, columns),
                              adds && is_direct, reinterpret_cast<const at::BFloat16*>(first),
                              reinterpret_cast<const at::BFloat16*>(memory.pairs.data()),
                              found.data_ptr<float>(), true);
  if (!is_direct && adds) to.add_(found, scale);
  if (!is_direct && !adds) to.copy_(found).mul_(scale);
}

void release_halves() { at::native::cpublas::brgemm_release(true); }

}  // namespace pullback
