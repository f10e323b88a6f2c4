// What an executor of one GPU is made with. Values; what they borrow outlives the executor. No CUDA
// here. [load thread]
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "backends/gpu_llm/companion_memory.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/model/matrix_source.h"
#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/kv_tiers/kv_tier_options.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/status.h"

namespace nereid::gpu {

class PeerGroup;

struct GpuExecutorOptions {
  int32_t device = 0;
  int32_t max_num_sequences = 512;
  int32_t max_num_tokens = 8192;
  int32_t max_positions = 0;                 // 0: the model's own limit
  int64_t max_cache_tokens = 0;              // 0: determined by cache_memory_fraction
  double cache_memory_fraction = 0.9;        // of the memory that is free after loading the weights
  bool is_cache_fraction_requested = false;  // by the configuration; see CountCacheBlocks
  bool caches_prefixes = false;              // the engine has a prefix cache
  int64_t max_cache_blocks = 0;              // never more than so many KV blocks; 0: no limit
  // Left free for the model or head that drafts for this one, and is loaded afterwards.
  CompanionMemory companion_memory;
  CacheFormat cache_format = CacheFormat::kBf16;
  // Memory for LoRA adapters: a part of what is free after loading the weights, before the KV cache
  // takes its part. 0: no adapters.
  double adapter_memory_fraction = 0.0;
  int64_t adapter_memory_bytes = 0;  // in place of the fraction, if it is not 0
  int32_t max_adapter_rank = 64;
  bool uses_graphs = true;  // for decode steps
  // Steps of a size, after its algorithms are chosen, until it is recorded as a graph. A recording
  // takes about 25 ms and saves 0.1 to 0.4 ms a step. Fused decode steps are recorded at once.
  int32_t steps_before_recording = 16;
  // How long PrepareSteps() runs steps at most. 0: it runs none.
  std::chrono::milliseconds most_warm_up_time = std::chrono::seconds(10);
  // Batch invariance: a sequence's numbers do not depend on the batch. Matrix products are slower.
  bool is_batch_invariant = false;
  // Runs decode steps of few sequences in one launch, for models that support it.
  bool fuses_decode = true;
  std::optional<DummyWeights> dummy;  // random weights instead of a checkpoint
  // Of the layers, whose weights stay in device memory. Each step copies the others' from host
  // memory. Dense models.
  double resident_weights_fraction = 1.0;
  // After every `profile_steps` steps, `on_profile` gets a table of operator times
  // (step_profile.h). Steps are then neither recorded nor overlapped. 0: off. [engine thread]
  int32_t profile_steps = 0;
  std::function<void(const std::string&)> on_profile;
  // Gets warnings about a model that runs, but slower. May be empty. [a rank's thread]
  std::function<void(const std::string&)> on_warning;
  // The group of GPUs that share the model (sharded_executor.h), borrowed; null: a single GPU. Rank
  // 0 samples the tokens.
  PeerGroup* group = nullptr;
  int32_t rank = 0;
  // Memory and a file that keep evicted blocks of the prefix cache. With a file, `checkpoint` is
  // that of the model, borrowed during Create: the file belongs to it. With several GPUs: of this
  // one's parts of the blocks.
  llm::KvTierOptions tiers = {};
  const llm::Checkpoint* checkpoint = nullptr;
};

// UNSUPPORTED names the parameter that this model does not support. A dynamic rope is only
// supported up to its trained length, because the rope table has one row for each position,
// independent of the prompt's length.
inline Status CheckOptions(const GpuExecutorOptions& options, const llm::DecoderSpec& spec) {
  for (const llm::RopeSpec& rope : spec.ropes) {
    if (rope.trained_positions > 0 && options.max_positions > rope.trained_positions) {
      return UnsupportedError("max_seq_len is ", options.max_positions,
                              ", but gpu_llm serves a dynamic rope up to the ",
                              rope.trained_positions,
                              " tokens that it was trained on (cpu_reference goes on)");
    }
  }
  const bool has_experts = std::any_of(spec.layers.begin(), spec.layers.end(),
                                       [](const llm::LayerSpec& layer) { return layer.is_moe; });
  if (options.resident_weights_fraction >= 1.0 || !has_experts) return {};
  return UnsupportedError("parameter 'gpu_weights_percent' is ", options.resident_weights_fraction,
                          " for a mixture of experts: gpu_llm keeps weights of dense models in "
                          "host memory");
}

}  // namespace nereid::gpu
