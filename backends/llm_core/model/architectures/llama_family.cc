// Keys and names shared by the Llama family.
#include "backends/llm_core/model/architectures/llama_family.h"

#include <algorithm>
#include <cmath>

namespace nereid::llm {

Activation ReadActivation(ConfigReader& config, std::string_view key, std::string_view fallback) {
  const std::string name = config.StringOr(key, fallback);
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu" || name == "gelu_python") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_python_tanh" ||
      name == "gelu_fast" || name == "gelu_accurate") {
    return Activation::kGeluTanh;
  }
  if (name == "relu") return Activation::kRelu;
  if (name == "quick_gelu") return Activation::kQuickGelu;
  config.Fail(
      UnsupportedError("config.json: '", key, "' is '", name, "', which is not supported ",
                       "(known: silu, gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, relu)"));
  return Activation::kSilu;
}

void ReadLlamaConfig(ConfigReader& config, DecoderSpec& spec, const LlamaDefaults& defaults) {
  spec.vocab_size = config.Size("vocab_size");
  spec.hidden_size = config.Size("hidden_size");
  spec.intermediate_size = config.Size("intermediate_size");
  spec.num_heads = config.Size("num_attention_heads");
  const bool names_kv_heads = config.json().contains("num_key_value_heads");
  spec.num_kv_heads = config.SizeOr(
      "num_key_value_heads",
      names_kv_heads || defaults.num_kv_heads == 0 ? spec.num_heads : defaults.num_kv_heads);
  if (!config.Has("head_dim") && defaults.head_dim == 0 && spec.hidden_size % spec.num_heads != 0) {
    config.Fail(InvalidArgError("config.json: hidden_size ", spec.hidden_size,
                                " is not a multiple of num_attention_heads ", spec.num_heads,
                                ", and there is no head_dim"));
  }
  spec.head_dim = config.SizeOr("head_dim", defaults.head_dim > 0
                                                ? defaults.head_dim
                                                : std::max(1, spec.hidden_size / spec.num_heads));
  spec.max_positions = config.SizeOr("max_position_embeddings", defaults.rope.max_positions);
  spec.extended_positions = ReadExtendedPositions(config, spec.max_positions);
  spec.norm.epsilon = config.EpsilonOr("rms_norm_eps", defaults.norm_epsilon);
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embeddings = config.BoolOr("tie_word_embeddings", false);
  spec.ropes = {ReadRope(config, spec.head_dim, defaults.rope)};
  spec.layers.resize(config.Count("num_hidden_layers", kMaxLayers));
}

std::string LlamaLayerPrefix(int32_t layer) {
  return StrCat("model.layers.", layer, ".");
}

namespace {

void MapAttention(const DecoderSpec& spec, int32_t layer, WeightMap& map) {
  const std::string attention = LlamaLayerPrefix(layer) + "self_attn.";
  const auto add = [&](WeightKind kind, WeightSource source) {
    map.sources[{layer, kind, kNoExpert}] = std::move(source);
  };
  add(WeightKind::kQ, Matrix(attention + "q_proj.weight", spec.q_size(), spec.hidden_size));
  add(WeightKind::kK, Matrix(attention + "k_proj.weight", spec.kv_size(), spec.hidden_size));
  add(WeightKind::kV, Matrix(attention + "v_proj.weight", spec.kv_size(), spec.hidden_size));
  add(WeightKind::kAttentionOut,
      Matrix(attention + "o_proj.weight", spec.hidden_size, spec.q_size()));
  if (spec.qkv_bias) {
    add(WeightKind::kQBias, Vector(attention + "q_proj.bias", spec.q_size()));
    add(WeightKind::kKBias, Vector(attention + "k_proj.bias", spec.kv_size()));
    add(WeightKind::kVBias, Vector(attention + "v_proj.bias", spec.kv_size()));
  }
  if (spec.attention_out_bias) {
    add(WeightKind::kAttentionOutBias, Vector(attention + "o_proj.bias", spec.hidden_size));
  }
  if (spec.qk_norm) {
    add(WeightKind::kQNorm, Vector(attention + "q_norm.weight", spec.head_dim));
    add(WeightKind::kKNorm, Vector(attention + "k_norm.weight", spec.head_dim));
  }
}

}  // namespace

void MapLlamaDecoder(const DecoderSpec& spec, WeightMap& map) {
  const int64_t hidden = spec.hidden_size;
  const auto add_norm = [&](int32_t layer, WeightKind weight, WeightKind bias, std::string name) {
    map.sources[{layer, weight, kNoExpert}] = Vector(name + ".weight", hidden);
    if (spec.norm.has_bias) map.sources[{layer, bias, kNoExpert}] = Vector(name + ".bias", hidden);
  };
  map.sources[{kNoLayer, WeightKind::kTokenEmbedding, kNoExpert}] =
      Matrix("model.embed_tokens.weight", spec.vocab_size, hidden);
  add_norm(kNoLayer, WeightKind::kFinalNorm, WeightKind::kFinalNormBias, "model.norm");
  if (!spec.tied_embeddings) {
    map.sources[{kNoLayer, WeightKind::kLmHead, kNoExpert}] =
        Matrix("lm_head.weight", spec.vocab_size, hidden);
  } else {
    map.tied_head = "lm_head.weight";
  }
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    const std::string prefix = LlamaLayerPrefix(layer);
    add_norm(layer, WeightKind::kInputNorm, WeightKind::kInputNormBias, prefix + "input_layernorm");
    add_norm(layer, WeightKind::kPreMlpNorm, WeightKind::kPreMlpNormBias,
             prefix + "post_attention_layernorm");
    MapAttention(spec, layer, map);
  }
  map.ignored_suffixes.push_back(".rotary_emb.inv_freq");
}

void MapLlamaMlp(const DecoderSpec& spec, WeightMap& map) {
  const int64_t hidden = spec.hidden_size;
  const int64_t inner = spec.intermediate_size;
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    if (spec.layers[layer].is_moe) continue;
    const std::string mlp = LlamaLayerPrefix(layer) + "mlp.";
    const auto add = [&](WeightKind kind, WeightSource source) {
      map.sources[{layer, kind, kNoExpert}] = std::move(source);
    };
    add(WeightKind::kGate, Matrix(mlp + "gate_proj.weight", inner, hidden));
    add(WeightKind::kUp, Matrix(mlp + "up_proj.weight", inner, hidden));
    add(WeightKind::kDown, Matrix(mlp + "down_proj.weight", hidden, inner));
    if (spec.mlp_bias) {
      add(WeightKind::kGateBias, Vector(mlp + "gate_proj.bias", inner));
      add(WeightKind::kUpBias, Vector(mlp + "up_proj.bias", inner));
      add(WeightKind::kDownBias, Vector(mlp + "down_proj.bias", hidden));
    }
  }
}

int32_t ReadExpertCount(ConfigReader& config, std::string_view key, const DecoderSpec& spec) {
  return config.Count(
      key, std::min(kMaxExperts, kMaxExpertsOfAllLayers / std::max(1, spec.num_layers())));
}

void SetSlidingWindow(int32_t window, DecoderSpec& spec) {
  for (LayerSpec& layer : spec.layers) layer.sliding_window = window;
}

void ReadSlidingWindows(ConfigReader& config, int32_t window, DecoderSpec& spec) {
  const std::vector<std::string> types = config.Strings("layer_types");
  if (!types.empty() && types.size() != spec.layers.size()) {
    config.Fail(InvalidArgError("config.json: 'layer_types' has ", types.size(),
                                " entries, expected ", spec.layers.size()));
    return;
  }
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    const bool slides = types.empty() || types[layer] == "sliding_attention";
    if (!slides && types[layer] != "full_attention") {
      config.Fail(
          UnsupportedError("config.json: layer type '", types[layer],
                           "' is not supported (known: full_attention, sliding_attention)"));
    }
    spec.layers[layer].sliding_window = slides ? window : 0;
  }
}

int32_t ReadQwenWindow(ConfigReader& config) {
  if (!config.BoolOr("use_sliding_window", false)) return 0;
  const bool is_null = config.json().contains("sliding_window") && !config.Has("sliding_window");
  return is_null ? 0 : config.SizeOr("sliding_window", 4096);
}

void ReadQwenSlidingWindows(ConfigReader& config, DecoderSpec& spec) {
  const int32_t window = ReadQwenWindow(config);
  if (window == 0) return;
  if (config.Has("layer_types")) return ReadSlidingWindows(config, window, spec);
  const double first = config.NumberOr("max_window_layers", 28);
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    if (layer >= first) spec.layers[layer].sliding_window = window;
  }
}

}  // namespace nereid::llm
