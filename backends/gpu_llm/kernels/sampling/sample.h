// Sampling: the most likely token of each row of logits, and draws by sampling rules.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/draw_plan.h"
#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

// Result of a block of threads for its share of a row.
struct PartialArgMax {
  float max;
  int32_t id;
  float sum;  // of exp(logit - max)
};
inline constexpr int kArgMaxSplits = 16;  // for each row; at most the lanes of a warp

// Where sampled tokens are written.
struct SampleTarget {
  // Results are in pinned host memory, for two steps: [2, max_num_rows] each. *buffer_index selects
  // the half that this step writes.
  const int32_t* buffer_index;
  int32_t* ids;
  float* log_probs;      // log of the softmax at the id, before any rule
  const int32_t* slots;  // slot of each row's sequence; negative: no token is sampled
  int32_t* last_tokens;  // [max_num_sequences]: read by the next step for PendingTokenId(slot)
  int max_num_rows;
};

// The most likely token of each row, the lowest id for equal logits.
struct ArgMaxParams {
  const float* logits;      // [num_rows, vocab_size]
  PartialArgMax* partials;  // [num_rows, kArgMaxSplits]
  int32_t* tickets;         // [num_rows]: finished splits, zero before and after
  float* log_sums;          // [num_rows]: log of the sum of exp(logit)
  SampleTarget target;
  int num_rows, vocab_size;  // vocab_size: a multiple of 4
};

inline namespace NEREID_KERNEL_FORM {
void ArgMax(const ArgMaxParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// Draws tokens from rows of logits by llm_core's rules (llm_core/sampling/sampler.h), for rows that
// need more than the most likely token.
struct DrawParams {
  float* logits;          // [num_rows, vocab_size]; rules are applied in place
  const float* log_sums;  // [num_rows], of the logits before the rules
  const DrawItem* items;  // [num_items]
  LogitEdit* edits;       // of all items
  // [number of masks, mask_words]: the tokens that are allowed, as in BatchEntry::token_masks. Ids
  // past its words are not allowed.
  const uint32_t* masks;
  SampleTarget target;
  int num_items, vocab_size;  // vocab_size: a multiple of 4
  int mask_words;             // of one mask
};

inline namespace NEREID_KERNEL_FORM {
void DrawTokens(const DrawParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
