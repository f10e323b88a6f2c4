// The executor on the CPU: runs a batch through the decoder and samples, on the engine's thread and
// the threads of its pool. [engine thread]
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu_reference/model/cpu_weights.h"
#include "backends/cpu_reference/model/decoder.h"
#include "backends/cpu_reference/model/kv_cache.h"
#include "backends/cpu_reference/thread_pool.h"
#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/kv_tiers/host_block_storage.h"
#include "backends/llm_core/kv_tiers/kv_tier_options.h"
#include "backends/llm_core/model/architecture.h"
#include "backends/llm_core/sampling/sampler.h"
#include "nereid/status.h"

namespace nereid::cpu {

struct CpuExecutorOptions {
  int32_t num_threads = 0;  // 0: all processors that this process may use
  int32_t max_num_sequences = 64;
  int32_t max_num_tokens = 256;  // raised to max_num_sequences if smaller
  int32_t max_positions = 0;     // 0: the limit of the model
  // 0: all sequences at full length, but at most a quarter of the memory.
  int64_t max_cache_tokens = 0;
  KvFormat kv_format = KvFormat::kFloat;
  const OpTable* ops = nullptr;  // null: the best available
  // Gets a sentence about what runs slower than was asked for. May be null.
  std::function<void(const std::string&)> on_warning;
  // Memory and a file that keep evicted blocks of the prefix cache; see LlmParameters.
  llm::KvTierOptions tiers;
};

class CpuExecutor : public llm::Executor {
 public:
  // Keeps the checkpoint, because weights point into it.
  static Result<std::unique_ptr<CpuExecutor>> Create(
      std::shared_ptr<const llm::Checkpoint> checkpoint, llm::DecoderModel model,
      const CpuExecutorOptions& options);

  const llm::ExecutorLimits& limits() const override { return limits_; }
  llm::ExecutorFeatures features() const override {
    return {.block_copies = true,
            .candidates = true,
            .logits = true,
            .prompt_log_probs = true,
            .top_tokens = true,
            .token_masks = true,
            .adapters = true,
            .draft_tokens = true,
            .draft_masks = true,
            .draft_trees = true,
            .prompt_embeddings = true,
            .draft_logits = true,
            .hidden_states = true,
            .batch_invariant = true};
  }
  llm::ExecutorMemory memory() const override {
    const int64_t tier_bytes = storage_ == nullptr ? 0 : storage_->host_bytes();
    return {.cpu_bytes = cache_.size_bytes() + weight_bytes_per_step() + tier_bytes};
  }
  llm::BlockStorage* block_storage() override { return storage_.get(); }
  Status CaptureHiddenStates(std::span<const int32_t> layers, llm::HiddenStatePlace place) override;
  Status Submit(const llm::StepBatch& batch) override;
  Result<llm::StepResult> Collect() override;

  // Logits of the last Submit. Sampling rules have changed them.
  std::span<const float> logits() const { return logits_; }
  const llm::DecoderSpec& spec() const { return model_.spec; }
  const ThreadPool& pool() const { return pool_; }
  // Bytes of weights that one decode step reads. Experts are not counted.
  int64_t weight_bytes_per_step() const { return weights_.bytes_per_step(); }

 private:
  CpuExecutor(std::shared_ptr<const llm::Checkpoint> checkpoint, llm::DecoderModel model,
              CpuWeights weights, KvCache cache, const llm::ExecutorLimits& limits,
              int32_t num_threads, const OpTable& ops);
  // The blocks of the KV cache as bytes, for the storage.
  class CacheBytes : public llm::BlockMemory {
   public:
    CacheBytes(const KvCache& cache, int32_t num_blocks) : cache_(cache), num_blocks_(num_blocks) {}
    int64_t block_bytes() const override { return cache_.block_bytes(); }
    int32_t num_blocks() const override { return num_blocks_; }
    void ReadBlock(int32_t block, std::span<std::byte> to) const override {
      cache_.ReadBlock(block, to);
    }
    void WriteBlock(int32_t block, std::span<const std::byte> from) const override {
      cache_.WriteBlock(block, from);
    }

   private:
    const KvCache& cache_;
    const int32_t num_blocks_;
  };

  Status OpenTiers(const CpuExecutorOptions& options, std::string_view isa);
  void Sample(const llm::StepBatch& batch);
  // Computes the results of one entry from its logits [num_logits, vocab_size].
  void SampleEntry(const llm::StepBatch& batch, size_t index, std::span<float> logits,
                   llm::Sampler& sampler);
  void CopyHiddenStates(const llm::StepBatch& batch);

  const std::shared_ptr<const llm::Checkpoint> checkpoint_;
  const llm::DecoderModel model_;
  const CpuWeights weights_;
  const KvCache cache_;
  const llm::ExecutorLimits limits_;
  const CacheBytes cache_bytes_{cache_, limits_.num_blocks};
  std::unique_ptr<llm::HostBlockStorage> storage_;  // null: none
  ThreadPool pool_;
  Decoder decoder_;
  std::vector<llm::Sampler> samplers_;  // one per thread
  std::span<float> logits_;
  llm::StepResult result_;
};

}  // namespace nereid::cpu
