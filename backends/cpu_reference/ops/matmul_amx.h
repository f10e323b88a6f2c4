// The product with bf16 weights on the tile unit of recent Intel processors (AMX). Other weights go
// to the ops of `avx512`. [any thread, once AmxIsUsable() was true]
#pragma once

#include "backends/cpu_reference/ops/matmul.h"

namespace nereid::cpu {

// Whether this processor has AMX and AVX512_BF16 and the kernel lets this process use them; asks
// the kernel for it.
bool AmxIsUsable();

// The floats of MatmulParams::scratch that MatmulAmx needs for `num_rows` rows.
int64_t AmxScratchFloats(int64_t num_rows, int64_t columns);

namespace amx {
// An input is the sum of two bf16 numbers, which keeps 16 bits of its mantissa; products with the
// weights are exact, sums are float. An element of `out` is one fixed sequence of tile operations
// over the columns, whatever else is in its tiles: decode and prefill give the same bits.
void MatmulBf16(const MatmulParams& params);
}  // namespace amx

}  // namespace nereid::cpu
