// Keys and names shared by GPT-2 and GPTBigCode.
#include "backends/llm_core/model/architectures/gpt_family.h"

#include <cmath>

#include "backends/llm_core/model/architectures/llama_family.h"

namespace nereid::llm {

namespace {

// Configs may use the key names of other families.
const char* NameOf(const ConfigReader& config, const char* own, const char* usual) {
  return config.Has(usual) ? usual : own;
}

}  // namespace

void ReadGptConfig(ConfigReader& config, DecoderSpec& spec) {
  spec.vocab_size = config.Size("vocab_size");
  spec.hidden_size = config.Size(NameOf(config, "n_embd", "hidden_size"));
  spec.intermediate_size = config.Has("n_inner") ? config.Size("n_inner") : 4 * spec.hidden_size;
  spec.num_heads = config.Size(NameOf(config, "n_head", "num_attention_heads"));
  spec.num_kv_heads = spec.num_heads;
  spec.head_dim = std::max(1, spec.hidden_size / spec.num_heads);
  spec.max_positions = config.Size(NameOf(config, "n_positions", "max_position_embeddings"));
  spec.norm = {.kind = NormKind::kLayer,
               .epsilon = config.EpsilonOr("layer_norm_epsilon", 1e-5),
               .weight_offset = 0.0f,
               .has_bias = true};
  spec.position = PositionKind::kLearned;
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = true;
  spec.mlp = MlpKind::kPlain;
  spec.activation = ReadActivation(config, "activation_function", "gelu_new");
  spec.tied_embeddings = config.BoolOr("tie_word_embeddings", true);
  spec.attention_scale = config.BoolOr("scale_attn_weights", true)
                             ? 1.0f / std::sqrt(static_cast<float>(spec.head_dim))
                             : 1.0f;
  spec.layers.resize(config.Count(NameOf(config, "n_layer", "num_hidden_layers"), kMaxLayers));
  if (config.BoolOr("scale_attn_by_inverse_layer_idx", false)) {
    for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
      spec.layers[layer].score_scale = 1.0f / static_cast<float>(layer + 1);
    }
  }
}

WeightSource Stored(WeightSource source, bool transposed) {
  source.transposed = transposed;
  if (transposed) std::swap(source.tensor_shape[0], source.tensor_shape[1]);
  return source;
}

void MapGpt(const DecoderSpec& spec, bool transposed, WeightMap& map) {
  const int64_t hidden = spec.hidden_size;
  const int64_t inner = spec.intermediate_size;
  map.prefix_renames = {{"transformer.", ""}};
  map.ignored_suffixes = {".attn.bias", ".attn.masked_bias"};
  const auto add = [&](int32_t layer, WeightKind kind, WeightSource source) {
    map.sources[{layer, kind, kNoExpert}] = std::move(source);
  };
  add(kNoLayer, WeightKind::kTokenEmbedding,
      Matrix("transformer.wte.weight", spec.vocab_size, hidden));
  add(kNoLayer, WeightKind::kPositionEmbedding,
      Matrix("transformer.wpe.weight", spec.max_positions, hidden));
  add(kNoLayer, WeightKind::kFinalNorm, Vector("transformer.ln_f.weight", hidden));
  add(kNoLayer, WeightKind::kFinalNormBias, Vector("transformer.ln_f.bias", hidden));
  if (spec.tied_embeddings) {
    map.tied_head = "lm_head.weight";
  } else {
    add(kNoLayer, WeightKind::kLmHead, Matrix("lm_head.weight", spec.vocab_size, hidden));
  }
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    const std::string h = StrCat("transformer.h.", layer, ".");
    add(layer, WeightKind::kInputNorm, Vector(h + "ln_1.weight", hidden));
    add(layer, WeightKind::kInputNormBias, Vector(h + "ln_1.bias", hidden));
    add(layer, WeightKind::kPreMlpNorm, Vector(h + "ln_2.weight", hidden));
    add(layer, WeightKind::kPreMlpNormBias, Vector(h + "ln_2.bias", hidden));
    add(layer, WeightKind::kAttentionOut,
        Stored(Matrix(h + "attn.c_proj.weight", hidden, hidden), transposed));
    add(layer, WeightKind::kAttentionOutBias, Vector(h + "attn.c_proj.bias", hidden));
    add(layer, WeightKind::kUp, Stored(Matrix(h + "mlp.c_fc.weight", inner, hidden), transposed));
    add(layer, WeightKind::kUpBias, Vector(h + "mlp.c_fc.bias", inner));
    add(layer, WeightKind::kDown,
        Stored(Matrix(h + "mlp.c_proj.weight", hidden, inner), transposed));
    add(layer, WeightKind::kDownBias, Vector(h + "mlp.c_proj.bias", hidden));
  }
}

}  // namespace nereid::llm
