/// DeviceHistogram: of one channel, or of the first few of several.
#pragma once

#include "common.h"

CUB_NAMESPACE_BEGIN

struct DeviceHistogram {
  /// Bins of equal width between `lower` and `upper`; what lies outside is not counted.
  template <class In, class Count, class Level, class N>
  static cudaError_t HistogramEven(void* storage, size_t& bytes, In samples, Count* histogram,
                                   int levels, Level lower, Level upper, N count,
                                   cudaStream_t = nullptr, bool = false) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    std::fill_n(histogram, levels - 1, Count{});
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      const int bin = even_bin<Level>(samples[i], levels, lower, upper);
      if (bin >= 0) ++histogram[bin];
    }
    return cudaSuccess;
  }
  /// Bins between the levels, which ascend.
  template <class In, class Count, class Level, class N>
  static cudaError_t HistogramRange(void* storage, size_t& bytes, In samples, Count* histogram,
                                    int levels, const Level* bounds, N count,
                                    cudaStream_t = nullptr, bool = false) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    std::fill_n(histogram, levels - 1, Count{});
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      const auto after = std::upper_bound(bounds, bounds + levels, static_cast<Level>(samples[i]));
      if (after != bounds && after != bounds + levels) ++histogram[after - bounds - 1];
    }
    return cudaSuccess;
  }
  template <int channels, int active, class In, class Count, class Level, class N>
  static cudaError_t MultiHistogramEven(void* storage, size_t& bytes, In samples,
                                        Count* histogram[active], int levels[active],
                                        Level lower[active], Level upper[active], N pixels,
                                        cudaStream_t = nullptr, bool = false) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    for (int c = 0; c < active; ++c) {
      std::fill_n(histogram[c], levels[c] - 1, Count{});
      for (size_t i = 0; i < static_cast<size_t>(pixels); ++i) {
        const int bin = even_bin<Level>(samples[i * channels + c], levels[c], lower[c], upper[c]);
        if (bin >= 0) ++histogram[c][bin];
      }
    }
    return cudaSuccess;
  }

 private:
  template <class Level, class T>
  static int even_bin(T sample, int levels, Level lower, Level upper) {
    const auto value = static_cast<Level>(sample);
    if (!(value >= lower && value < upper)) return -1;
    if constexpr (std::is_integral_v<Level>) {
      const auto from_lower =
          static_cast<unsigned long long>(value) - static_cast<unsigned long long>(lower);
      const auto width =
          static_cast<unsigned long long>(upper) - static_cast<unsigned long long>(lower);
      return static_cast<int>(from_lower * static_cast<unsigned>(levels - 1) / width);
    } else {
      const int bin =
          static_cast<int>((value - lower) * (static_cast<Level>(levels - 1) / (upper - lower)));
      return bin < levels - 1 ? bin : levels - 2;
    }
  }
};

CUB_NAMESPACE_END
