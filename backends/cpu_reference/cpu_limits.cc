// Limits of the model and of the options. By default the KV cache gets a part of the memory.
#include "backends/cpu_reference/cpu_limits.h"

#include <unistd.h>

#include <algorithm>

#include "backends/cpu_reference/cpu_executor.h"

namespace nereid::cpu {
namespace {

int64_t PhysicalMemoryBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
}

}  // namespace

Result<llm::ExecutorLimits> CpuLimits(const llm::DecoderSpec& spec,
                                      const CpuExecutorOptions& options) {
  llm::ExecutorLimits limits;
  limits.vocab_size = spec.vocab_size;
  limits.max_positions = spec.max_positions;
  limits.max_num_sequences = std::max(1, options.max_num_sequences);
  limits.max_num_tokens = std::max(options.max_num_tokens, limits.max_num_sequences);
  limits.block_size = kBlockSize;
  limits.attention_window = spec.attention_window();
  limits.num_sink_tokens = spec.num_sink_tokens;
  for (const llm::RopeSpec& rope : spec.ropes) {
    if (!rope.short_inv_freq.empty()) limits.long_rope_positions = rope.short_positions;
    if (rope.trained_positions > 0) limits.dynamic_rope_positions = rope.trained_positions;
  }
  const int64_t memory_blocks =
      PhysicalMemoryBytes() / 4 / KvCache::BlockBytes(spec, options.kv_format);
  const auto blocks_for = [](int64_t tokens) { return (tokens + kBlockSize - 1) / kBlockSize; };
  int64_t blocks = blocks_for(options.max_cache_tokens);
  if (options.max_cache_tokens == 0) {
    blocks = std::min(memory_blocks, limits.max_num_sequences * blocks_for(limits.max_positions));
  } else if (blocks > 4 * memory_blocks) {
    return InvalidArgError("max_tokens_in_paged_kv_cache ", options.max_cache_tokens, " needs ",
                           blocks, " blocks x ", KvCache::BlockBytes(spec, options.kv_format),
                           " bytes; this machine has ", PhysicalMemoryBytes(), " bytes of memory");
  }
  limits.num_blocks = static_cast<int32_t>(std::clamp<int64_t>(blocks, 1, INT32_MAX));
  return limits;
}

}  // namespace nereid::cpu
