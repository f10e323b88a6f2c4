// Compares the parameters that not every executor supports with the features of this one.
#include "backends/llm_core/adapter/executor_requirements.h"

namespace nereid::llm {

Status CheckExecutor(const LlmParameters& parameters, Executor& executor) {
  const ExecutorFeatures features = executor.features();
  if (executor.limits().num_sink_tokens != parameters.num_sink_tokens) {
    return UnsupportedError("parameter 'sink_token_length' is ", parameters.num_sink_tokens,
                            ": this backend has no attention sinks, expected 0");
  }
  if (parameters.tiers.is_enabled() && executor.block_storage() == nullptr) {
    return UnsupportedError(
        "parameter '",
        parameters.tiers.host_bytes > 0 ? "kv_cache_host_memory_bytes" : "kv_cache_disk_path",
        "': this backend's executor keeps no blocks outside the KV cache");
  }
  if (parameters.is_batch_invariant && !features.batch_invariant) {
    return UnsupportedError(
        "parameter 'batch_invariant' is true: this backend's results may depend "
        "on what else is in a batch");
  }
  if (parameters.lora.names_adapters() && !features.adapters) {
    const char* const parameter = !parameters.lora.adapters.empty() ? "lora_adapters"
                                  : !parameters.lora.folder.empty() ? "lora_dir"
                                                                    : "lora_prefetch_dir";
    return UnsupportedError("parameter '", parameter,
                            "': this backend's executor does not support LoRA adapters");
  }
  if (parameters.speculation.kind != DrafterKind::kOff && !features.draft_tokens) {
    return UnsupportedError("parameter 'speculative_decoding' is '",
                            parameters.speculative_decoding,
                            "': this executor does not verify draft tokens, expected off");
  }
  return {};
}

}  // namespace nereid::llm
