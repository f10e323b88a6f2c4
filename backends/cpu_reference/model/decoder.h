// Runs a decoder over one batch: token ids in, logits out. The functions follow the equations of
// the model; the ops compute, and the thread pool parallelizes their loops. [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu_reference/model/adapter_products.h"
#include "backends/cpu_reference/model/captured_states.h"
#include "backends/cpu_reference/model/cpu_weights.h"
#include "backends/cpu_reference/model/decoded_blocks.h"
#include "backends/cpu_reference/model/kv_cache.h"
#include "backends/cpu_reference/model/linear_products.h"
#include "backends/cpu_reference/model/prompt_rows.h"
#include "backends/cpu_reference/model/rope_angles.h"
#include "backends/cpu_reference/model/tree_attention.h"
#include "backends/cpu_reference/ops/op_table.h"
#include "backends/cpu_reference/thread_pool.h"
#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::cpu {

class Decoder {
 public:
  // All arguments must outlive the decoder.
  Decoder(const llm::DecoderSpec& spec, const CpuWeights& weights, const KvCache& cache,
          const OpTable& ops, ThreadPool& pool);

  // Returns the requested logits in batch order, [num_logits, vocab_size]. They are valid, and may
  // be changed, until the next call.
  std::span<float> Forward(const llm::StepBatch& batch);

  // From the next call on, Forward keeps the hidden states that enter these layers. Each number is
  // in [0, num_layers]; num_layers means the output of the last layer.
  void Capture(std::vector<int32_t> layers) { captured_.Choose(std::move(layers)); }
  // What the last call of Forward kept.
  const CapturedStates& captured() const { return captured_; }

 private:
  // Consecutive tokens of one sequence whose attention is computed together.
  struct AttentionTile {
    int32_t sequence;  // index into StepBatch::entries
    int32_t first_token;
    int32_t num_tokens;
    bool is_tree = false;  // all are drafts of a tree
  };

  void PrepareBuffers(const llm::StepBatch& batch);
  // Sets positions_ and tiles_ of an entry.
  void PlaceEntry(const llm::StepBatch& batch, size_t index);
  void Embed(const llm::StepBatch& batch);
  void RunAttention(const llm::StepBatch& batch, int32_t layer);
  // Whether every entry has one token. Only the thread that computes a head's key and value then
  // reads them, so that norm, rope, cache write and attention of a head run together.
  bool is_decode(const llm::StepBatch& batch) const {
    return num_tokens_ == static_cast<int64_t>(batch.entries.size());
  }
  void PrepareHeads(const llm::StepBatch& batch, const AttentionTile& tile, int32_t layer,
                    int32_t first, int32_t last);
  void PrepareAllHeads(const llm::StepBatch& batch, int32_t layer);
  void WriteCache(const llm::BatchEntry& sequence, const AttentionTile& tile, int32_t layer,
                  int32_t first_head, int32_t last_head);
  void RunPagedAttention(const llm::StepBatch& batch, int32_t layer);
  // The attention of one head of a tile. `params` holds the head and what is the same for
  // all tiles; it is not copied for each head, and keeps the rest of what this call sets. Runs on
  // thread number `thread` of the pool.
  void AttendTile(const llm::BatchEntry& sequence, const AttentionTile& tile, int32_t layer,
                  int thread, PagedAttentionParams& params);
  // out (+)= MLP(in), of `num_rows` rows. `layer`: its adapters apply; kNoLayer: an expert.
  void RunMlp(const MlpWeights& mlp, int32_t layer, const float* in, int64_t num_rows, float* out,
              bool accumulate);
  void RunMoe(int32_t layer, const float* in, float* out);
  std::span<float> ComputeLogits(const llm::StepBatch& batch);

  void ApplyNorm(const NormWeights& norm, const float* in, int64_t num_rows, float* out,
                 bool accumulate = false);
  void NormHeads(const NormWeights& norm, float* heads, int64_t num_heads);
  void ApplyRope(int32_t layer, int64_t token, float* heads, int64_t num_heads);
  // Whether attention and MLP add their output to the residual themselves, without a post norm.
  bool adds_directly() const { return !spec_.post_norms; }

  const llm::DecoderSpec& spec_;
  const CpuWeights& weights_;
  const KvCache& cache_;
  const OpTable& ops_;
  ThreadPool& pool_;
  LinearProducts products_;
  RopeAngles angles_;
  CapturedStates captured_;
  PromptRows prompt_rows_;
  AdapterProducts adapters_;

  int64_t num_tokens_ = 0;
  std::vector<int32_t> positions_;  // [num_tokens]
  std::vector<AttentionTile> tiles_;
  std::vector<float> residual_;                  // [num_tokens, hidden_size]
  std::vector<float> normed_;                    // [num_tokens, hidden_size]
  std::vector<float> hidden_;                    // [num_tokens, hidden_size]
  std::vector<float> q_, k_, v_;                 // [num_tokens, heads * head_dim]
  std::vector<float> attention_;                 // [num_tokens, num_heads * head_dim]
  std::vector<float> gate_, up_;                 // [num_tokens, intermediate_size]
  std::vector<std::vector<float>> scores_;       // per thread
  std::vector<std::vector<AttentionRow>> rows_;  // per thread
  std::vector<DecodedBlocks> decoded_;           // per thread, of an encoded cache
  std::vector<DraftBlockTable> draft_tables_;    // per thread
  std::vector<float> logits_;
};

}  // namespace nereid::cpu
