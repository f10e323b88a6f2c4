// Qwen3, dense and MoE: Llama with an RMS norm over each head of q and k.
#include <set>

#include "backends/llm_core/model/architectures/architectures.h"
#include "backends/llm_core/model/architectures/llama_family.h"

namespace nereid::llm {
namespace {

void ReadQwen3Config(ConfigReader& config, const LlamaDefaults& defaults, DecoderSpec& spec) {
  ReadLlamaConfig(config, spec, defaults);
  spec.qk_norm = true;
  spec.qkv_bias = spec.attention_out_bias = config.BoolOr("attention_bias", false);
}

// Every `decoder_sparse_step`th layer has experts, except those in `mlp_only_layers`.
void ReadMoeLayers(ConfigReader& config, DecoderSpec& spec) {
  const int32_t step = config.SizeOr("decoder_sparse_step", 1);
  const std::vector<double> listed = config.Numbers("mlp_only_layers");
  const std::set<double> dense(listed.begin(), listed.end());
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    spec.layers[layer].is_moe = (layer + 1) % step == 0 && !dense.contains(layer);
  }
}

}  // namespace

void BuildQwen3(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadQwen3Config(config, {.rope = {.max_positions = 32768}, .head_dim = 128, .num_kv_heads = 32},
                  spec);
  ReadQwenSlidingWindows(config, spec);
  MapLlamaDecoder(spec, map);
  MapLlamaMlp(spec, map);
}

void BuildQwen3Moe(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadQwen3Config(config, {.rope = {.max_positions = 32768}, .num_kv_heads = 4}, spec);
  SetSlidingWindow(ReadQwenWindow(config), spec);
  const char* experts_key = config.Has("num_experts") ? "num_experts" : "num_local_experts";
  spec.moe = {.num_experts = ReadExpertCount(config, experts_key, spec),
              .experts_per_token = config.Size("num_experts_per_tok"),
              .intermediate_size = config.Size("moe_intermediate_size"),
              .normalize_top_k = config.BoolOr("norm_topk_prob", false)};
  ReadMoeLayers(config, spec);
  MapLlamaDecoder(spec, map);
  // Avoids names for the layers and experts of a rejected config.
  if (!config.status().ok()) return;
  MapLlamaMlp(spec, map);
  const int64_t hidden = spec.hidden_size;
  const int64_t inner = spec.moe.intermediate_size;
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    if (!spec.layers[layer].is_moe) continue;
    const std::string mlp = LlamaLayerPrefix(layer) + "mlp.";
    map.sources[{layer, WeightKind::kRouter, kNoExpert}] =
        Matrix(mlp + "gate.weight", spec.moe.num_experts, hidden);
    for (int32_t expert = 0; expert < spec.moe.num_experts; ++expert) {
      const std::string prefix = StrCat(mlp, "experts.", expert, ".");
      map.sources[{layer, WeightKind::kGate, expert}] =
          Matrix(prefix + "gate_proj.weight", inner, hidden);
      map.sources[{layer, WeightKind::kUp, expert}] =
          Matrix(prefix + "up_proj.weight", inner, hidden);
      map.sources[{layer, WeightKind::kDown, expert}] =
          Matrix(prefix + "down_proj.weight", hidden, inner);
    }
  }
}

}  // namespace nereid::llm
