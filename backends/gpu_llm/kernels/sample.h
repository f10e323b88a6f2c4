// The likeliest token of each row of logits: equal logits, the lowest id.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nereid::gpu {

// What a block of threads found in its share of a row.
struct ArgMaxPart {
  float max;
  int32_t id;
  float sum;  // of exp(logit - max)
};
inline constexpr int kArgMaxParts = 8;  // a row

struct ArgMaxParams {
  const float* logits;       // [num_rows, vocab_size]
  ArgMaxPart* parts;         // [num_rows, kArgMaxParts]
  int32_t* tickets;          // [num_rows], zero before and after
  int32_t* ids;              // [num_rows], in memory of the host
  float* log_probs;          // [num_rows], likewise: log of the softmax at the id
  int num_rows, vocab_size;  // vocab_size: a multiple of 4
};

void ArgMax(const ArgMaxParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
