#include "instructions.h"

namespace pullback {

extern const Instructions needed_instructions = {
#if defined(__AVX2__)
    .avx2 = true,
#endif
#if defined(__FMA__)
    .fma = true,
#endif
#if defined(__AVX512F__)
    .avx512f = true,
#endif
};

}  // namespace pullback
