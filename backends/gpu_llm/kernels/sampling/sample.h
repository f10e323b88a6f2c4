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

// Where drawn tokens go.
struct SampleTarget {
  // In memory of the host: results of two steps, [2, max_num_rows] each, of which *half is written.
  const int32_t* half;
  int32_t* ids;
  float* log_probs;      // log of the softmax at the id, before any rule
  const int32_t* slots;  // of each row's sequence; negative: none draws from it
  int32_t* last_tokens;  // [max_num_sequences]: what the next step reads as PendingTokenId(slot)
  int max_num_rows;
};

struct ArgMaxParams {
  const float* logits;  // [num_rows, vocab_size]
  ArgMaxPart* parts;    // [num_rows, kArgMaxParts]
  int32_t* tickets;     // [num_rows], zero before and after
  float* log_sums;      // [num_rows]: log of the sum of exp(logit)
  SampleTarget target;
  int num_rows, vocab_size;  // vocab_size: a multiple of 4
};

void ArgMax(const ArgMaxParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
