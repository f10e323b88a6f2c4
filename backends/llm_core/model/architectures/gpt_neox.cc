// GPT-NeoX and Pythia: partial rotary embedding, attention and MLP in parallel on the residual.
#include <cmath>

#include "backends/llm_core/model/architectures/architectures.h"
#include "backends/llm_core/model/architectures/llama_family.h"

namespace nereid::llm {
namespace {

void ReadNeoXConfig(ConfigReader& config, DecoderSpec& spec) {
  // Pythia's configs use these keys instead of rope_theta and partial_rotary_factor.
  ReadLlamaConfig(config, spec,
                  {.rope = {.theta = config.NumberOr("rotary_emb_base", 10000.0),
                            .partial_factor = config.NumberOr("rotary_pct", 0.25),
                            .allows_partial_rotary = true}});
  spec.num_kv_heads = spec.num_heads;
  spec.norm = {.kind = NormKind::kLayer,
               .epsilon = config.EpsilonOr("layer_norm_eps", 1e-5),
               .weight_offset = 0.0f,
               .has_bias = true};
  spec.qkv_bias = spec.attention_out_bias = config.BoolOr("attention_bias", true);
  spec.mlp_bias = true;
  spec.mlp = MlpKind::kPlain;
  spec.activation = ReadActivation(config, "hidden_act", "gelu");
  spec.parallel_residual = config.BoolOr("use_parallel_residual", true);
}

void MapNeoXLayer(const DecoderSpec& spec, int32_t layer, WeightMap& map) {
  const int64_t hidden = spec.hidden_size;
  const int64_t inner = spec.intermediate_size;
  const std::string prefix = StrCat("gpt_neox.layers.", layer, ".");
  const auto add = [&](WeightKind kind, WeightSource source) {
    map.sources[{layer, kind, kNoExpert}] = std::move(source);
  };
  // query_key_value contains (q, k, v) head by head.
  const auto add_part = [&](WeightKind kind, const char* name, int64_t columns, int part) {
    WeightSource source =
        RowsOf(prefix + name, 3 * hidden, columns, part * spec.head_dim, spec.head_dim);
    source.group_stride = 3 * spec.head_dim;
    source.num_groups = spec.num_heads;
    add(kind, source);
  };
  add(WeightKind::kInputNorm, Vector(prefix + "input_layernorm.weight", hidden));
  add(WeightKind::kInputNormBias, Vector(prefix + "input_layernorm.bias", hidden));
  add(WeightKind::kPreMlpNorm, Vector(prefix + "post_attention_layernorm.weight", hidden));
  add(WeightKind::kPreMlpNormBias, Vector(prefix + "post_attention_layernorm.bias", hidden));
  add_part(WeightKind::kQ, "attention.query_key_value.weight", hidden, 0);
  add_part(WeightKind::kK, "attention.query_key_value.weight", hidden, 1);
  add_part(WeightKind::kV, "attention.query_key_value.weight", hidden, 2);
  add(WeightKind::kAttentionOut, Matrix(prefix + "attention.dense.weight", hidden, hidden));
  if (spec.qkv_bias) {
    add_part(WeightKind::kQBias, "attention.query_key_value.bias", 0, 0);
    add_part(WeightKind::kKBias, "attention.query_key_value.bias", 0, 1);
    add_part(WeightKind::kVBias, "attention.query_key_value.bias", 0, 2);
    add(WeightKind::kAttentionOutBias, Vector(prefix + "attention.dense.bias", hidden));
  }
  add(WeightKind::kUp, Matrix(prefix + "mlp.dense_h_to_4h.weight", inner, hidden));
  add(WeightKind::kUpBias, Vector(prefix + "mlp.dense_h_to_4h.bias", inner));
  add(WeightKind::kDown, Matrix(prefix + "mlp.dense_4h_to_h.weight", hidden, inner));
  add(WeightKind::kDownBias, Vector(prefix + "mlp.dense_4h_to_h.bias", hidden));
}

}  // namespace

void BuildGptNeoX(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadNeoXConfig(config, spec);
  const int64_t hidden = spec.hidden_size;
  const auto add = [&](WeightKind kind, WeightSource source) {
    map.sources[{kNoLayer, kind, kNoExpert}] = std::move(source);
  };
  add(WeightKind::kTokenEmbedding, Matrix("gpt_neox.embed_in.weight", spec.vocab_size, hidden));
  add(WeightKind::kFinalNorm, Vector("gpt_neox.final_layer_norm.weight", hidden));
  add(WeightKind::kFinalNormBias, Vector("gpt_neox.final_layer_norm.bias", hidden));
  if (spec.tied_embeddings) {
    map.tied_head = "embed_out.weight";
  } else {
    add(WeightKind::kLmHead, Matrix("embed_out.weight", spec.vocab_size, hidden));
  }
  map.ignored_suffixes = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"};
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) MapNeoXLayer(spec, layer, map);
}

}  // namespace nereid::llm
