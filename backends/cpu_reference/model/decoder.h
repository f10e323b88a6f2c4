// Runs a decoder over one batch: ids in, logits out. Reads like the model's equations; the ops do
// the work, the pool shares their loops. [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu_reference/model/cpu_weights.h"
#include "backends/cpu_reference/model/kv_cache.h"
#include "backends/cpu_reference/model/product_inputs.h"
#include "backends/cpu_reference/model/rope_angles.h"
#include "backends/cpu_reference/ops/op_table.h"
#include "backends/cpu_reference/thread_pool.h"
#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::cpu {

class Decoder {
 public:
  // All borrowed for the decoder's life.
  Decoder(const llm::DecoderSpec& spec, const CpuWeights& weights, const KvCache& cache,
          const OpTable& ops, ThreadPool& pool);

  // Logits of every token that the batch asks for, in batch order: [num_logits, vocab_size]. Valid
  // (and changeable) until the next call.
  std::span<float> Forward(const llm::Batch& batch);

 private:
  // Tokens of one sequence whose attention is computed together.
  struct Tile {
    int32_t sequence;  // index into Batch::sequences
    int32_t first_token;
    int32_t num_tokens;
  };

  void PrepareBuffers(const llm::Batch& batch);
  void Embed(const llm::Batch& batch);
  void RunAttention(const llm::Batch& batch, int32_t layer);
  // Steps of one token a sequence: a head's key and value are read by nobody but the thread that
  // makes them, so that all of a head is done at once.
  bool is_decode(const llm::Batch& batch) const {
    return num_tokens_ == static_cast<int64_t>(batch.sequences.size());
  }
  void ReadyHeads(const llm::Batch& batch, const Tile& tile, int32_t layer, int32_t first,
                  int32_t last);
  void ReadyAllHeads(const llm::Batch& batch, int32_t layer);
  void WriteCache(const llm::BatchSequence& sequence, const Tile& tile, int32_t layer,
                  int32_t first_head, int32_t last_head);
  void DecodeBlocks(int32_t layer, int thread, PagedAttentionParams& params);
  void Attend(const llm::Batch& batch, int32_t layer);
  // out (+)= MLP(in), of `num_rows` rows.
  void RunMlp(const Mlp& mlp, const float* in, int64_t num_rows, float* out, bool accumulate);
  void RunMoe(const LayerWeights& layer, const float* in, float* out);
  std::span<float> ComputeLogits(const llm::Batch& batch);

  void ApplyNorm(const Norm& norm, const float* in, int64_t num_rows, float* out,
                 bool accumulate = false);
  void NormHeads(const Norm& norm, float* heads, int64_t num_heads);
  void ApplyRope(int32_t layer, int64_t token, float* heads, int64_t num_heads);
  void Multiply(const Linear& linear, const float* in, int64_t num_rows, float* out,
                int64_t out_stride, bool accumulate);
  // Adds what a half of a layer made in hidden_ to the residual, by way of the post norm if any.
  bool adds_directly() const { return !spec_.post_norms; }

  const llm::DecoderSpec& spec_;
  const CpuWeights& weights_;
  const KvCache& cache_;
  const OpTable& ops_;
  ThreadPool& pool_;
  ProductInputs inputs_;
  RopeAngles angles_;

  int64_t num_tokens_ = 0;
  std::vector<int32_t> positions_;  // [num_tokens]
  std::vector<Tile> tiles_;
  std::vector<float> residual_;                  // [num_tokens, hidden_size]
  std::vector<float> normed_;                    // [num_tokens, hidden_size]
  std::vector<float> hidden_;                    // [num_tokens, hidden_size]
  std::vector<float> q_, k_, v_;                 // [num_tokens, heads * head_dim]
  std::vector<float> attention_;                 // [num_tokens, num_heads * head_dim]
  std::vector<float> gate_, up_;                 // [num_tokens, intermediate_size]
  std::vector<std::vector<float>> scores_;       // per thread
  std::vector<std::vector<AttentionRow>> rows_;  // per thread
  std::vector<std::vector<float>> scratch_;      // per thread, for MatmulParams::scratch
  // Of an encoded cache, per thread: blocks of one head as floats, and 0, 1, 2, ... as their table.
  std::vector<std::vector<float>> decoded_;
  std::vector<std::vector<int32_t>> decoded_tables_;
  std::vector<float> logits_;
};

}  // namespace nereid::cpu
