// Gemma 2 and Gemma 3 (text): scaled embeddings, norms with weight 1 + w before and after attention
// and MLP, soft caps (Gemma 2) or q/k norms and two ropes (Gemma 3), local and global layers.
#include <cmath>

#include "backends/llm_core/model/architectures/architectures.h"
#include "backends/llm_core/model/architectures/llama_family.h"
#include "backends/llm_core/model/rope.h"

namespace nereid::llm {
namespace {

// Null means no cap; an absent key means the family's default.
float ReadCap(ConfigReader& config, const char* key, double absent) {
  const bool is_null = config.json().contains(key) && !config.Has(key);
  return static_cast<float>(is_null ? 0.0 : config.NumberOr(key, absent));
}

void ReadGemmaConfig(ConfigReader& config, const RopeDefaults& rope, DecoderSpec& spec) {
  ReadLlamaConfig(config, spec, {.rope = rope, .head_dim = 256, .num_kv_heads = 4});
  if (config.BoolOr("use_bidirectional_attention", false)) {  // for encoders such as EmbeddingGemma
    config.Fail(UnsupportedError(
        "config.json: 'use_bidirectional_attention' is true, which is not supported"));
  }
  spec.norm.weight_offset = static_cast<float>(config.NumberOr("norm_weight_offset", 1.0));
  spec.post_norms = true;
  spec.activation = ReadActivation(config, "hidden_activation", "gelu_pytorch_tanh");
  spec.tied_embeddings = config.BoolOr("tie_word_embeddings", true);
  spec.qkv_bias = spec.attention_out_bias = config.BoolOr("attention_bias", false);
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden_size));
  spec.attention_scale =
      static_cast<float>(1.0 / std::sqrt(config.NumberOr("query_pre_attn_scalar", 256.0)));
}

// Every `pattern`th layer is global and the others are local, unless layer_types is present.
void ReadGemmaWindows(ConfigReader& config, int32_t pattern, DecoderSpec& spec) {
  const int32_t window = config.SizeOr("sliding_window", 4096);
  if (config.Has("layer_types")) return ReadSlidingWindows(config, window, spec);
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    spec.layers[layer].sliding_window = (layer + 1) % pattern != 0 ? window : 0;
  }
}

// Moves the ropes of both kinds of layers into rope_parameters, as newer configs have them. Older
// configs have them next to it. Keys directly in rope_parameters are ignored.
void NestRopes(nlohmann::json& own) {
  const ConfigReader config(own);
  const auto rope_of = [&](const char* key, const char* theta_key) {
    nlohmann::json rope = config.Object("rope_parameters").Object(key).json();
    if (!rope.contains("rope_theta") && config.Has(theta_key)) rope["rope_theta"] = own[theta_key];
    return rope;
  };
  nlohmann::json global = rope_of("full_attention", "rope_theta");
  global.update(config.Object("rope_scaling").json());
  if (!config.Has("rope_scaling") || own["rope_scaling"].is_object()) own.erase("rope_scaling");
  if (config.Has("rope_parameters") && !own["rope_parameters"].is_object()) return;
  own["rope_parameters"] = {
      {"full_attention", std::move(global)},
      {"sliding_attention", rope_of("sliding_attention", "rope_local_base_freq")}};
}

// The rope under `key` of rope_parameters, for the config's number of positions.
RopeSpec ReadNestedRope(ConfigReader& config, const char* key, int32_t head_dim,
                        const RopeDefaults& defaults) {
  nlohmann::json own = {{"rope_parameters", config.Object("rope_parameters").Object(key).json()}};
  constexpr const char* kShared = "max_position_embeddings";
  if (config.Has(kShared)) own[kShared] = config.json()[kShared];
  ConfigReader reader(own);
  RopeSpec rope = ReadRope(reader, head_dim, defaults);
  config.Fail(reader.status());
  return rope;
}

void MapGemma(const DecoderSpec& spec, WeightMap& map) {
  MapLlamaDecoder(spec, map);
  MapLlamaMlp(spec, map);
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    const std::string prefix = LlamaLayerPrefix(layer);
    const auto set = [&](WeightKind kind, const char* name) {
      map.sources[{layer, kind, kNoExpert}] = Vector(prefix + name, spec.hidden_size);
    };
    set(WeightKind::kPostAttentionNorm, "post_attention_layernorm.weight");
    set(WeightKind::kPreMlpNorm, "pre_feedforward_layernorm.weight");
    set(WeightKind::kPostMlpNorm, "post_feedforward_layernorm.weight");
  }
}

}  // namespace

void BuildGemma2(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadGemmaConfig(config, {.max_positions = 8192}, spec);
  spec.attention_soft_cap = ReadCap(config, "attn_logit_softcapping", 50.0);
  spec.logit_soft_cap = ReadCap(config, "final_logit_softcapping", 30.0);
  ReadGemmaWindows(config, 2, spec);
  MapGemma(spec, map);
}

void BuildGemma3(ConfigReader& whole, DecoderSpec& spec, WeightMap& map) {
  // Unlike in other families, this key applies only within a rope.
  nlohmann::json own = whole.json();
  own.erase("original_max_position_embeddings");
  NestRopes(own);
  ConfigReader config(std::move(own));
  const RopeDefaults rope = {.theta = 1e6, .max_positions = 131072};
  ReadGemmaConfig(config, rope, spec);
  spec.qk_norm = true;
  spec.scales_input_embeddings = false;  // the factor belongs to the lookup of a token's row
  spec.attention_soft_cap = ReadCap(config, "attn_logit_softcapping", 0.0);
  spec.logit_soft_cap = ReadCap(config, "final_logit_softcapping", 0.0);
  ReadGemmaWindows(config, config.SizeOr("sliding_window_pattern", 6), spec);
  // Rope 0 is for global layers, rope 1 for local ones.
  spec.ropes = {ReadNestedRope(config, "full_attention", spec.head_dim, rope),
                ReadNestedRope(config, "sliding_attention", spec.head_dim,
                               {.max_positions = rope.max_positions})};
  for (LayerSpec& layer : spec.layers) layer.rope = layer.sliding_window > 0 ? 1 : 0;
  MapGemma(spec, map);
  whole.Fail(config.status());
}

// The text model of a vision model. Its config omits keys with default values.
void BuildGemma3Vision(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  constexpr std::pair<const char*, uint32_t> kUsual[] = {{"vocab_size", 262208},
                                                         {"hidden_size", 2304},
                                                         {"intermediate_size", 9216},
                                                         {"num_hidden_layers", 26},
                                                         {"num_attention_heads", 8}};
  nlohmann::json text = config.Object("text_config").json();
  for (const auto& [key, usual] : kUsual) {
    if (!text.contains(key) || text[key].is_null()) text[key] = usual;
  }
  text["tie_word_embeddings"] = config.BoolOr("tie_word_embeddings", true);
  ConfigReader reader(std::move(text));
  BuildGemma3(reader, spec, map);
  spec.end_ids = reader.Ids("eos_token_id");
  config.Fail(reader.status());
  spec.logit_soft_cap = 0.0f;  // the reference applies the cap in the text-only model only
  map.prefix_renames = {{"", "language_model."}, {"model.", "model.language_model."}};
  for (const char* part : {"vision_tower.", "multi_modal_projector."}) {
    map.ignored_prefixes.push_back(part);
    map.ignored_prefixes.push_back(StrCat("model.", part));
  }
}

}  // namespace nereid::llm
