// The most likely tokens of each row of logits with their log probabilities, for drafts. Unlike
// FindTopTokens(), all multiprocessors share a row.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

inline constexpr int kMaxRankedTokens = 16;    // of a row
inline constexpr int kRankSplitTokens = 4096;  // of a row, for each block of threads
inline constexpr int kMaxRankSplits = 128;
inline constexpr int kMaxRankVocabulary = kRankSplitTokens * kMaxRankSplits;

// Result of a block of threads for its share of a row.
struct RankPartial {
  float logits[kMaxRankedTokens];
  int32_t ids[kMaxRankedTokens];
  float max, sum;  // sum: of exp(logit - max)
};

// Most likely first, the lowest id first for equal logits.
struct RankTokensParams {
  const float* logits;               // [num_rows, stride]
  RankPartial* partials;             // [num_rows, kMaxRankSplits]
  int32_t* tickets;                  // [num_rows]: finished splits, zero before and after
  int32_t* ids;                      // [num_rows, kMaxRankedTokens]; may be pinned host memory
  float* log_probs;                  // parallel to `ids`
  int num_rows, vocab_size, stride;  // vocab_size: at most kMaxRankVocabulary
  int num_tokens;                    // of each row
};

inline namespace NEREID_KERNEL_FORM {
void RankTokens(const RankTokensParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
