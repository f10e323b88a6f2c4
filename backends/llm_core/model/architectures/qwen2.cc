// Qwen2 and Qwen2.5: Llama with biases on q, k and v only.
#include "backends/llm_core/model/architectures/architectures.h"
#include "backends/llm_core/model/architectures/llama_family.h"

namespace nereid::llm {

void BuildQwen2(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadLlamaConfig(config, spec, {.rope = {.max_positions = 32768}, .num_kv_heads = 32});
  spec.qkv_bias = true;
  ReadQwenSlidingWindows(config, spec);
  MapLlamaDecoder(spec, map);
  MapLlamaMlp(spec, map);
}

}  // namespace nereid::llm
