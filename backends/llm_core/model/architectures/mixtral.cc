// Mixtral: Mistral with several expert MLPs per layer, of which a router selects two for each
// token.
#include "backends/llm_core/model/architectures/architectures.h"
#include "backends/llm_core/model/architectures/llama_family.h"

namespace nereid::llm {

void BuildMixtral(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadLlamaConfig(
      config, spec,
      {.rope = {.theta = 1e6, .max_positions = 131072}, .norm_epsilon = 1e-5, .num_kv_heads = 8});
  SetSlidingWindow(config.Has("sliding_window") ? config.Size("sliding_window") : 0, spec);
  spec.moe = {.num_experts = ReadExpertCount(config, "num_local_experts", spec),
              .experts_per_token = config.Size("num_experts_per_tok"),
              .intermediate_size = spec.intermediate_size,
              .normalize_top_k = true};
  MapLlamaDecoder(spec, map);
  // Avoids names for the layers and experts of a rejected config.
  if (!config.status().ok()) return;
  const int64_t hidden = spec.hidden_size;
  const int64_t inner = spec.intermediate_size;
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    spec.layers[layer].is_moe = true;
    const std::string moe = LlamaLayerPrefix(layer) + "block_sparse_moe.";
    map.sources[{layer, WeightKind::kRouter, kNoExpert}] =
        Matrix(moe + "gate.weight", spec.moe.num_experts, hidden);
    for (int32_t expert = 0; expert < spec.moe.num_experts; ++expert) {
      const std::string prefix = StrCat(moe, "experts.", expert, ".");
      map.sources[{layer, WeightKind::kGate, expert}] = Matrix(prefix + "w1.weight", inner, hidden);
      map.sources[{layer, WeightKind::kUp, expert}] = Matrix(prefix + "w3.weight", inner, hidden);
      map.sources[{layer, WeightKind::kDown, expert}] = Matrix(prefix + "w2.weight", hidden, inner);
    }
  }
}

}  // namespace nereid::llm
