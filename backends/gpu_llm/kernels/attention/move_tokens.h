// Moves the keys and values of accepted drafts of a tree to the places behind the newest token, in
// all layers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/gpu_llm/step_drafts.h"

namespace nereid::gpu {

// The moves of a sequence happen one after the other, so that a place may be read and then written.
// Sequences share no place.
struct MoveTokensParams {
  void* cache;  // [num_layers] layers of blocks
  int64_t layer_bytes;
  const TokenMove* moves;   // readable by the device
  const MoveRange* ranges;  // [num_sequences]
  int num_sequences, num_layers, num_kv_heads, head_dim;
  CacheFormat format;
};

inline namespace NEREID_KERNEL_FORM {
void MoveTokens(const MoveTokensParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
