// StarCoder2: Llama's attention with layer norms, biases and a plain MLP.
#include "backends/llm_core/model/architectures/architectures.h"
#include "backends/llm_core/model/architectures/llama_family.h"

namespace nereid::llm {

void BuildStarCoder2(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadLlamaConfig(config, spec, {.rope = {.max_positions = 4096}, .num_kv_heads = 2});
  SetSlidingWindow(config.Has("sliding_window") ? config.Size("sliding_window") : 0, spec);
  spec.norm = {.kind = NormKind::kLayer,
               .epsilon = config.EpsilonOr("norm_epsilon", 1e-5),
               .weight_offset = 0.0f,
               .has_bias = true};
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = config.BoolOr("use_bias", true);
  spec.mlp = MlpKind::kPlain;
  spec.activation = ReadActivation(config, "hidden_act", "gelu_pytorch_tanh");
  spec.tied_embeddings = config.BoolOr("tie_word_embeddings", true);
  MapLlamaDecoder(spec, map);
  const int64_t hidden = spec.hidden_size;
  const int64_t inner = spec.intermediate_size;
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    const std::string mlp = LlamaLayerPrefix(layer) + "mlp.";
    map.sources[{layer, WeightKind::kUp, kNoExpert}] = Matrix(mlp + "c_fc.weight", inner, hidden);
    map.sources[{layer, WeightKind::kDown, kNoExpert}] =
        Matrix(mlp + "c_proj.weight", hidden, inner);
    if (spec.mlp_bias) {
      map.sources[{layer, WeightKind::kUpBias, kNoExpert}] = Vector(mlp + "c_fc.bias", inner);
      map.sources[{layer, WeightKind::kDownBias, kNoExpert}] = Vector(mlp + "c_proj.bias", hidden);
    }
  }
}

}  // namespace nereid::llm
