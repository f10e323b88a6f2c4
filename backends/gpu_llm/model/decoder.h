// Runs a decoder over one step on the device: ids in, logits out. Reads like the model's equations;
// kernels and products do the work, in order, on one stream. [engine thread]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/gpu_llm/comm/peer_group.h"
#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/model/decode_step_runner.h"
#include "backends/gpu_llm/model/experts.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/model/linear.h"
#include "backends/gpu_llm/model/rope_tables.h"
#include "backends/gpu_llm/model/sharding.h"
#include "backends/gpu_llm/operator_timer.h"
#include "backends/gpu_llm/step_plan.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct DecoderLimits {
  int32_t max_num_tokens = 0;  // rows of a step, padding included
  int32_t max_num_logits = 0;
  int32_t max_positions = 0;
  int32_t max_decode_items = 0;
  int32_t max_num_sequences = 0;
  int32_t num_processors = 0;  // of the device
  CacheFormat cache_format = CacheFormat::kBf16;
  bool is_invariant = false;  // products: LinearRunner::Create
  bool fuses_decode = true;   // small decode steps in one launch, where the model allows it
};

// Of a decoder whose spec and weights are one of several GPUs' share.
struct DecoderShare {
  PeerGroup* group = nullptr;  // borrowed; null: it has all
  Sharding sharding;
};

class Decoder {
 public:
  // `spec` and `weights` are borrowed for the decoder's life.
  static Result<Decoder> Create(const llm::DecoderSpec& spec, const GpuWeights& weights,
                                const DecoderLimits& limits, const DecoderShare& share = {});
  Decoder(Decoder&&) noexcept = default;

  // All layers.
  static int64_t CacheBlockBytes(const llm::DecoderSpec& spec, CacheFormat format);
  // Zeroed: what was never written is read where a block is not full.
  Status AllocateCache(int32_t num_blocks);
  // All of it with such bytes, as another owner may have left them: for tests.
  Status FillCache(uint8_t byte);

  // `words`, on the device, is laid out as `shape` says.
  Status Forward(const StepShape& shape, const int32_t* words, bool may_time, cudaStream_t stream);
  // Rows [first, first + count) of the step's logits, at most max_num_logits, to logits(); of
  // several GPUs, to rank 0's.
  Status ComputeLogits(const StepShape& shape, const int32_t* words, int32_t first, int32_t count,
                       bool may_time, cudaStream_t stream);
  // Whether all that ran since the last look ran as it will run later: algorithms are chosen.
  bool TakeSettled() { return linear_->TakeSettled(); }
  // The whole of a block, all layers.
  Status CopyBlock(int32_t from, int32_t to, cudaStream_t stream);
  float* logits() const { return logits_.as<float>(); }
  int32_t* last_tokens() const { return last_tokens_.as<int32_t>(); }
  // Floats from one row of logits to the next: PaddedVocabulary().
  int32_t logits_stride() const { return PaddedVocabulary(spec_->vocab_size); }
  int64_t memory_bytes() const;
  // From now on steps are timed operator by operator. Borrowed.
  void SetTimer(OperatorTimer* timer) { timer_ = timer; }
  // Steps of up to kDecodeStepRows decoding sequences are one launch.
  bool fuses_decode() const { return decode_step_.has_value(); }
  // Why they are not, where the device is the reason.
  const std::string& decode_refusal() const { return decode_refusal_; }

 private:
  Decoder(const llm::DecoderSpec& spec, const GpuWeights& weights, const DecoderShare& share)
      : spec_(&spec), weights_(&weights), share_(share) {}
  Status AllocateShare(const DecoderLimits& limits);
  // The layers and the logits of the step are one launch.
  bool IsFused(const StepShape& shape) const {
    return decode_step_ && DecodeStepRunner::CanRun(shape);
  }
  Status RunHead(const StepShape& shape, const int32_t* words, int32_t first, int32_t count,
                 bool may_time, cudaStream_t stream);
  Status RunFused(const StepShape& shape, const int32_t* words, cudaStream_t stream);
  Status RunLayer(int32_t layer, const StepShape& shape, const int32_t* words, bool may_time,
                  cudaStream_t stream);
  Status RunMlp(int32_t layer, const StepShape& shape, bool may_time, cudaStream_t stream);
  Status RunExperts(int32_t layer, const StepShape& shape, cudaStream_t stream);
  // Rows of the residual, normed, to `out`.
  void ApplyNorm(const GpuNorm& norm, const int32_t* rows, int num_rows, const DeviceMemory& out,
                 cudaStream_t stream);
  // out = in x matrix; of the normed residual with `norm`.
  Status Multiply(const char* name, const GpuMatrix& matrix, const DeviceMemory& in,
                  const GpuNorm* norm, StreamOutput output, const DeviceMemory& out, int num_rows,
                  bool may_time, cudaStream_t stream);
  // How a product is added to the residual.
  struct Addition {
    const __nv_bfloat16* bias;  // null: none
    const GpuNorm& post_norm;   // of what is added; no weight: none
    const GpuNorm* next_norm;   // of the residual after; null: the last layer's
  };
  Status AddProduct(const char* name, const GpuMatrix& matrix, const DeviceMemory& in,
                    const Addition& addition, int num_rows, bool may_time, cudaStream_t stream);
  // The sum of all GPUs' parts_ in place of a product; with norms_sums_ the next norm is taken too.
  Status AddSum(const Addition& addition, int num_rows, cudaStream_t stream);
  const GpuNorm* NextInputNorm(int32_t layer) const;
  void Attend(int32_t layer, const StepShape& shape, const int32_t* words, cudaStream_t stream);
  // What follows on the stream is `name`'s: where times are taken (operator_timer.h).
  void Mark(const char* name, const OperatorWork& work, cudaStream_t stream) {
    if (timer_ != nullptr) timer_->Mark(name, work, stream);
  }
  void MarkAttention(const char* name, bool of_decoding, int32_t window, cudaStream_t stream);
  // Of rows of hidden_size, so many of which are read or written for each of `num_rows`.
  OperatorWork RowsWork(int num_rows, int num_times) const {
    return {2.0 * num_rows * num_times * spec_->hidden_size};
  }
  int64_t qkv_size() const { return spec_->q_size() + 2 * spec_->kv_size(); }

  const llm::DecoderSpec* spec_;
  const GpuWeights* weights_;
  DecoderShare share_;
  int32_t max_num_tokens_ = 0, max_num_logits_ = 0, num_processors_ = 0;
  RopeTables rope_tables_;
  Experts experts_;
  DeviceMemory cache_;  // [layers][blocks][kv_heads] heads of a block
  CacheFormat cache_format_ = CacheFormat::kBf16;
  int64_t cache_layer_bytes_ = 0;
  DeviceMemory residual_;   // [num_tokens, hidden_size]
  DeviceMemory normed_;     // [num_tokens, hidden_size]
  DeviceMemory mlp_in_;     // the same, with a parallel residual
  DeviceMemory qkv_;        // [num_tokens, q_size + 2 * kv_size]
  DeviceMemory attention_;  // [num_tokens, q_size]
  // With experts, rows are pairs of token and expert.
  DeviceMemory gate_up_;             // [num_tokens, 2 * intermediate_size]
  DeviceMemory gated_;               // [num_tokens, intermediate_size]
  DeviceMemory logits_;              // [num_logits, logits_stride()] float
  DeviceMemory partials_, tickets_;  // of decode attention; tickets also of routing
  DeviceMemory last_tokens_;         // [max_num_sequences]
  DeviceMemory parts_;       // [num_tokens, hidden_size], to be summed over GPUs; none: alone
  bool norms_sums_ = false;  // what follows a sum over GPUs finds the residual normed in normed_
  DeviceMemory own_logits_;  // [num_logits, this GPU's rows of the LM head] float; none: alone
  std::optional<LinearRunner> linear_;
  OperatorTimer* timer_ = nullptr;  // null: nothing is timed
  std::optional<DecodeStepRunner> decode_step_;
  std::string decode_refusal_;
};

}  // namespace nereid::gpu
