// Mistral: Llama with a sliding window in the early releases.
#include "backends/llm_core/model/architectures/architectures.h"
#include "backends/llm_core/model/architectures/llama_family.h"

namespace nereid::llm {

void BuildMistral(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadLlamaConfig(config, spec, {.rope = {.max_positions = 131072}, .num_kv_heads = 8});
  // Null means no window (releases since 0.2); an absent key means the window of the first release.
  const bool has_window = config.Has("sliding_window") || !config.json().contains("sliding_window");
  ReadSlidingWindows(config, has_window ? config.SizeOr("sliding_window", 4096) : 0, spec);
  MapLlamaDecoder(spec, map);
  MapLlamaMlp(spec, map);
}

}  // namespace nereid::llm
