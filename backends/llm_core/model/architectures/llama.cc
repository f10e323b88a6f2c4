// Llama 1 to 3.3, and other checkpoints with model_type "llama".
#include "backends/llm_core/model/architectures/architectures.h"
#include "backends/llm_core/model/architectures/llama_family.h"

namespace nereid::llm {

void BuildLlama(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadLlamaConfig(config, spec);
  spec.qkv_bias = spec.attention_out_bias = config.BoolOr("attention_bias", false);
  spec.mlp_bias = config.BoolOr("mlp_bias", false);
  MapLlamaDecoder(spec, map);
  MapLlamaMlp(spec, map);
}

}  // namespace nereid::llm
