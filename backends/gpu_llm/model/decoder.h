// Runs a decoder over one step on the device: token ids in, logits out. The code follows the
// model's equations and launches kernels and matrix products in order on one stream. [engine
// thread]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu_llm/comm/peer_group.h"
#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/model/cache_blocks.h"
#include "backends/gpu_llm/model/decode_step_runner.h"
#include "backends/gpu_llm/model/device_adapters.h"
#include "backends/gpu_llm/model/experts.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/model/hidden_states.h"
#include "backends/gpu_llm/model/linear.h"
#include "backends/gpu_llm/model/rope_tables.h"
#include "backends/gpu_llm/model/sharding.h"
#include "backends/gpu_llm/operator_timer.h"
#include "backends/gpu_llm/step_drafts.h"
#include "backends/gpu_llm/step_plan.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct DecoderLimits {
  int32_t max_num_tokens = 0;  // rows of a step, padding included
  int32_t max_num_logits = 0;
  int32_t max_positions = 0;
  int32_t max_decode_items = 0;
  int32_t item_tokens = 0;    // StepPlanner::item_tokens()
  int64_t partial_bytes = 0;  // StepPlanner::PartialBytes() of max_decode_items
  int32_t max_num_sequences = 0;
  int32_t num_processors = 0;  // of the device
  CacheFormat cache_format = CacheFormat::kBf16;
  bool is_batch_invariant = false;  // batch invariance: LinearRunner::Create
  bool fuses_decode = true;  // fuses small decode steps into one launch, if the model allows it
};

// The GPUs of a model, and this GPU's shard of spec and weights.
struct TensorParallel {
  PeerGroup* group = nullptr;  // borrowed; null: a single GPU
  Sharding sharding;
};

class Decoder {
 public:
  // `spec` and `weights` are borrowed for the decoder's life.
  static Result<Decoder> Create(const llm::DecoderSpec& spec, const GpuWeights& weights,
                                const DecoderLimits& limits,
                                const TensorParallel& tensor_parallel = {});
  Decoder(Decoder&&) noexcept = default;

  // Bytes of a KV block in all layers.
  static int64_t CacheBlockBytes(const llm::DecoderSpec& spec, CacheFormat format);
  // Allocates and clears the cache: kernels may read values of a partly filled block that were
  // never written.
  Status AllocateCache(int32_t num_blocks);
  // For tests: sets every byte of the cache, as another owner may have left it.
  Status FillCache(uint8_t byte);

  // The rows of the next step's virtual tokens, see StepPlanner::prompt_rows(): [.., hidden_size]
  // in pinned host memory, borrowed until the step has ended.
  void SetPromptRows(const __nv_bfloat16* rows) { prompt_rows_ = rows; }
  // `words` is on the device with the layout of `shape`.
  Status Forward(const StepShape& shape, const int32_t* words, bool may_time, cudaStream_t stream);
  // The same for an EAGLE-3 head, whose rows have hidden states besides their tokens. Allocates
  // its buffers at the first call.
  struct HeadInputs {
    const __nv_bfloat16* features = nullptr;  // [num_features, depth of feature_projection]
    int32_t num_features = 0;                 // the first rows
    // The head's own hidden states, for the rows behind them: those in these rows of `own`
    // [.., hidden_size]. Negative: of padding.
    const __nv_bfloat16* own = nullptr;
    const int32_t* own_rows = nullptr;  // [rows of the step]; null: no row has one
    const __nv_bfloat16* token_embedding = nullptr;
    const int32_t* target_ids = nullptr;  // the ids of last_tokens(); null: they are the target's
    bool norm_before_residual = false;    // the residual is the normed hidden state
    bool may_time = false;                // CublasGemm::Run: the step's size is a common one
  };
  Status ForwardHead(const HeadInputs& inputs, const StepShape& shape, const int32_t* words,
                     cudaStream_t stream);
  // [num_tokens, hidden_size] of the newest step: the output of the last layer.
  const __nv_bfloat16* residual() const { return residual_.as<__nv_bfloat16>(); }
  // Computes rows [first, first + count) of the step's logits, at most max_num_logits, into
  // logits(). With several GPUs, only rank 0's logits() are complete.
  Status ComputeLogits(const StepShape& shape, const int32_t* words, int32_t first, int32_t count,
                       bool may_time, cudaStream_t stream);
  // How many matrix products since the last call did not use their final algorithm.
  int TakeNumTrials() { return linear_->TakeNumTrials(); }
  CacheBlocks cache_blocks() const;
  // Moves the keys and values of tokens in all layers (StepDrafts). Both lists are readable by the
  // device until the moves have ended.
  Status MoveTokens(const TokenMove* moves, const MoveRange* ranges, int num_ranges,
                    cudaStream_t stream);
  // Keeps the inputs of these layers in later steps: in those with
  // StepShape::returns_hidden_states, and in those that are not fused. Call it before the first
  // step, and with several GPUs on all of them; rank 0 keeps the rows.
  Status Capture(std::vector<int32_t> layers);
  // Of the newest such step; null: nothing is kept.
  const HiddenStates* captured() const { return captured_ ? &*captured_ : nullptr; }
  float* logits() const { return logits_.as<float>(); }
  int32_t* last_tokens() const { return last_tokens_.as<int32_t>(); }
  // Floats from one row of logits to the next: PaddedVocabulary().
  int32_t logits_stride() const { return PaddedVocabulary(spec_->vocab_size); }
  int64_t memory_bytes() const;
  // Enables timing of operators. `timer` is borrowed.
  void SetTimer(OperatorTimer* timer) { timer_ = timer; }
  // The LoRA adapters of steps that have any. Borrowed.
  Status SetAdapters(const DeviceAdapters* adapters);
  // Whether any decode steps run in one launch. fused_steps() says which.
  bool fuses_decode() const { return decode_step_.has_value(); }
  FusedSteps fused_steps() const { return decode_step_ ? decode_step_->steps() : FusedSteps(); }
  // The reason, if the device cannot run the fused step.
  const std::string& decode_refusal() const { return decode_refusal_; }

 private:
  Decoder(const llm::DecoderSpec& spec, const GpuWeights& weights,
          const TensorParallel& tensor_parallel)
      : spec_(&spec), weights_(&weights), tensor_parallel_(tensor_parallel) {}
  Status AllocateTensorParallel(const DecoderLimits& limits);
  // Whether one launch computes the layers and the logits of the step.
  bool IsFused(const StepShape& shape) const { return decode_step_ && decode_step_->CanRun(shape); }
  Status RunHead(const StepShape& shape, const int32_t* words, int32_t first, int32_t count,
                 bool may_time, cudaStream_t stream);
  Status RunFused(const StepShape& shape, const int32_t* words, cudaStream_t stream);
  Status RunLayer(int32_t layer, const StepShape& shape, const int32_t* words, bool may_time,
                  cudaStream_t stream);
  Status RunMlp(int32_t layer, const StepShape& shape, bool may_time, cudaStream_t stream);
  // The gate of the activation is SiLU's, and nothing is added before.
  bool IsSiluGate(const GpuLayer& weights) const;
  // What follows the first product of the MLP.
  GemmEpilogue MlpEpilogue(const GpuLayer& weights) const;
  // From gate_up_ to gated_.
  void RunActivation(const GpuLayer& weights, int num_rows, cudaStream_t stream);
  Status RunExperts(int32_t layer, const StepShape& shape, cudaStream_t stream);
  // Writes the normed rows of the residual to `out`.
  void ApplyNorm(const GpuNorm& norm, const int32_t* rows, int num_rows, const DeviceMemory& out,
                 cudaStream_t stream);
  // Both norms of a layer with a parallel residual, which are LayerNorms: to normed_ and mlp_in_.
  void ApplyBothNorms(const GpuLayer& weights, int num_rows, cudaStream_t stream);
  // A matrix with the bias that follows its product, under its name in profiles.
  struct LinearLayer {
    const char* name;
    const GpuMatrix& matrix;
    const __nv_bfloat16* bias = nullptr;  // null: none, or it is added later
  };
  // out = in x matrix + bias; with `norm`, `in` is normed first.
  Status Multiply(const LinearLayer& linear, const DeviceMemory& in, const GpuNorm* norm,
                  GemmEpilogue output, const DeviceMemory& out, int num_rows, bool may_time,
                  cudaStream_t stream);
  // How a matrix product is added to the residual.
  struct ResidualUpdate {
    const __nv_bfloat16* bias;  // null: none
    const GpuNorm& post_norm;   // applied to the product; no weight: none
    // The norm of the updated residual, and the product that reads it. Null: none, or unknown.
    const GpuNorm* next_norm = nullptr;
    const GpuMatrix* next = nullptr;
    GemmEpilogue next_output = GemmEpilogue::kBf16;
  };
  Status AddGemmToResidual(const char* name, const GpuMatrix& matrix, const DeviceMemory& in,
                           const ResidualUpdate& update, const DeviceAdapters::Target& adapted,
                           int num_rows, bool may_time, cudaStream_t stream);
  // residual += product + bias, or its norm. Also norms the new residual if a separate kernel would
  // do so before the next product.
  void AddToResidual(const DeviceMemory& product, const ResidualUpdate& update, int num_rows,
                     cudaStream_t stream);
  // Whether normed_ has the normed residual that AddToResidual() has left there; once.
  bool TakeNormed() { return std::exchange(has_normed_, false); }
  // Whether the step has adapters, and one that changes a matrix of the group may be among them.
  bool Adapts(AdapterGroup group) const {
    return adapter_rows_.num_tiles > 0 && adapters_->Changes(group);
  }
  // The products of `in` with the step's adapters: Shrink before the model's own product, Expand
  // adds them to it. Nothing happens without adapters of the group.
  Status ShrinkAdapters(const DeviceAdapters::Target& target, const DeviceMemory& in,
                        cudaStream_t stream);
  Status ExpandAdapters(const DeviceAdapters::Target& target, const DeviceMemory& out,
                        int64_t out_stride, cudaStream_t stream);
  // Whether shrink runs on adapter_stream_.
  bool ForksAdapters() const {
    return adapter_stream_ && timer_ == nullptr && adapter_rows_.tiles == nullptr;
  }
  // Makes the stream wait for the newest Shrink.
  Status JoinAdapters(cudaStream_t stream);
  // All-reduces partial_sums_ into the residual; with fuses_all_reduce_norm_ the next norm is
  // fused.
  Status AllReduceResidual(const ResidualUpdate& update, int num_rows, cudaStream_t stream);
  // Whether the combination of experts or the all-reduce in front of the layer has left its normed
  // input in normed_. Not if weights are streamed: the norm's may not be there yet. Not after an
  // all-reduce if the layer's input is kept, either: only one without a norm leaves the whole
  // residual on each GPU.
  bool HasNormedInput(int32_t layer) const {
    if (layer == 0 || weights_->stream != nullptr) return false;
    if (fuses_experts_norm_ && spec_->layers[layer - 1].is_moe) return true;
    return fuses_all_reduce_norm_ && !(captured_ && captured_->has(layer));
  }
  // The norm of the next layer's input, if the layer's last kernel may apply it.
  const GpuNorm* NextInputNorm(int32_t layer) const;
  void RunAttention(int32_t layer, const StepShape& shape, const int32_t* words,
                    cudaStream_t stream);
  // The kernels launched after this call belong to operator `name` (operator_timer.h).
  void Mark(const char* name, const OperatorWork& work, cudaStream_t stream) {
    if (timer_ != nullptr) timer_->Mark(name, work, stream);
  }
  template <typename Params>
  Params AttentionOf(int32_t layer, const int32_t* words) const;
  void RunPrefillAttention(int32_t layer, const StepShape& shape, const int32_t* words,
                           cudaStream_t stream);
  // Memory for contexts of a quantized cache in bf16.
  Status AllocateUnpacked();
  // `part`: of the heads.
  void MarkAttention(const char* name, bool of_decoding, int32_t window, cudaStream_t stream,
                     double part = 1.0);
  // Work of reading or writing `num_times` rows of hidden_size for each of `num_rows`.
  OperatorWork RowsWork(int num_rows, int num_times) const {
    return {2.0 * num_rows * num_times * spec_->hidden_size};
  }
  int64_t qkv_size() const { return spec_->q_size() + 2 * spec_->kv_size(); }

  const llm::DecoderSpec* spec_;
  const GpuWeights* weights_;
  TensorParallel tensor_parallel_;
  int32_t max_num_tokens_ = 0, max_num_logits_ = 0, num_processors_ = 0;
  RopeTables rope_tables_;
  Experts experts_;
  DeviceMemory cache_;  // [layers][blocks][kv_heads] heads of a block
  CacheFormat cache_format_ = CacheFormat::kBf16;
  KernelMode mode_ = KernelMode::kFastest;
  int64_t cache_layer_bytes_ = 0;
  DeviceMemory unpacked_;          // [max_unpacked_] blocks of a head in bf16; empty: bf16 cache
  DeviceMemory unpacked_indices_;  // [max_unpacked_]: 0, 1, ..
  int32_t max_unpacked_ = 0;
  DeviceMemory residual_;  // [num_tokens, hidden_size]
  DeviceMemory normed_;    // [num_tokens, hidden_size]
  DeviceMemory mlp_in_;    // [num_tokens, hidden_size], with a parallel residual
  DeviceMemory head_in_;   // [num_tokens, 2 * hidden_size] of an EAGLE-3 head; empty: another model
  DeviceMemory qkv_;       // [num_tokens, q_size + 2 * kv_size]
  DeviceMemory attention_;  // [num_tokens, q_size]
  // With experts, rows are pairs of token and expert.
  DeviceMemory gate_up_;             // [num_tokens, 2 * intermediate_size]
  DeviceMemory gated_;               // [num_tokens, intermediate_size]
  DeviceMemory logits_;              // [num_logits, logits_stride()] float
  DeviceMemory partials_, tickets_;  // of decode attention; tickets also of routing
  int32_t item_tokens_ = 0;          // of partials_
  DeviceMemory last_tokens_;         // [max_num_sequences]
  DeviceMemory partial_sums_;  // [num_tokens, hidden_size], summed over GPUs; empty: single GPU
  bool has_normed_ = false;    // see TakeNormed()
  bool fuses_all_reduce_norm_ = false;  // after an all-reduce, normed_ has the normed residual
  bool fuses_experts_norm_ = false;     // the same after a combination of experts
  // [num_logits, this GPU's rows of the LM head] float; empty: single GPU
  DeviceMemory shard_logits_;
  std::optional<LinearRunner> linear_;
  const __nv_bfloat16* prompt_rows_ = nullptr;
  OperatorTimer* timer_ = nullptr;  // null: no profile
  const DeviceAdapters* adapters_ = nullptr;
  AdapterRows adapter_rows_ = {};  // of the step that is being launched
  // In decode steps shrink runs on a stream of its own, beside the model's own product.
  Stream adapter_stream_;
  Event adapter_forked_, adapter_joined_;
  std::optional<HiddenStates> captured_;
  std::optional<DecodeStepRunner> decode_step_;
  std::string decode_refusal_;
};

}  // namespace nereid::gpu
