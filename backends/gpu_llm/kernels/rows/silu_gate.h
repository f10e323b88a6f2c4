// out = silu(gate) * up. Gate and up come interleaved in groups of 8 columns, as their product with
// the weights leaves them: columns [16 j, + 8) of a row are gate columns [8 j, + 8), the next 8 the
// up columns.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace nereid::gpu {

void SiluGate(const __nv_bfloat16* gate_up,  // [num_rows, 2 * inner_size]
              __nv_bfloat16* out,            // [num_rows, inner_size]
              int64_t num_rows, int inner_size, cudaStream_t stream);

}  // namespace nereid::gpu
