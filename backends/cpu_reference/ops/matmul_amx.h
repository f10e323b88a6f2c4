// Matrix products with bf16 and integer weights on AMX, the tile unit of recent Intel processors.
// Other weights use the ops of `avx512`. [any thread, after AmxIsUsable() returned true]
#pragma once

#include "backends/cpu_reference/ops/matmul.h"

namespace nereid::cpu {

// Whether the processor has AMX and AVX512_BF16 and the kernel permits their use. Requests the
// permission from the kernel.
bool AmxIsUsable();

// The floats of MatmulParams::scratch that MatmulBf16 needs for `num_rows` rows.
int64_t AmxScratchFloats(int64_t num_rows, int64_t columns);

namespace amx {
// Each input is the sum of two bf16 numbers, which keeps 16 bits of its mantissa. Products with the
// weights are exact; sums are float. An element of `out` is one fixed sequence of tile operations
// over the columns, whatever else its tiles contain: decode and prefill give the same bits.
void MatmulBf16(const MatmulParams& params);

// Integer weights, for more than a few rows: requires IntegersSuitAmx. The arithmetic is that of
// matmul_int.cc.
bool IntegersSuitAmx(const MatmulParams& params);
void MatmulIntegers(const MatmulParams& params);
}  // namespace amx

}  // namespace nereid::cpu
