// What the descendants of Llama share: the keys of config.json and the tensor names
// model.layers.N.self_attn.q_proj.weight and so on. [load thread]
#pragma once

#include <string>

#include "backends/llm_core/model/config_reader.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "backends/llm_core/model/rope.h"
#include "backends/llm_core/model/weight_map.h"

namespace nereid::llm {

// What a hostile config.json may make us allocate names for.
inline constexpr int32_t kMaxLayers = 1024;
inline constexpr int32_t kMaxExperts = 1024;  // of a layer
inline constexpr int32_t kMaxExpertsOfAllLayers = 1 << 16;

// What a family's configs mean where they leave a key out.
struct LlamaDefaults {
  RopeDefaults rope = {};
  double norm_epsilon = 1e-6;
  int32_t head_dim = 0;      // 0: hidden_size / num_attention_heads
  int32_t num_kv_heads = 0;  // 0: as many as heads, which null says in every family
};

// Sizes, heads, rope, activation, ties. Leaves norms at RMS, biases off, attention full.
void ReadLlamaConfig(ConfigReader& config, DecoderSpec& spec, const LlamaDefaults& defaults = {});

// "model.layers.<layer>."
std::string LlamaLayerPrefix(int32_t layer);

// Embedding, final norm and head; input and post-attention norms; attention with the biases and
// q/k norms that the spec asks for.
void MapLlamaDecoder(const DecoderSpec& spec, WeightMap& map);
// mlp.{gate,up,down}_proj of every layer that is not MoE.
void MapLlamaMlp(const DecoderSpec& spec, WeightMap& map);

// The number of experts of each layer, under `key`; the layers are known.
int32_t ReadExpertCount(ConfigReader& config, std::string_view key, const DecoderSpec& spec);

// The window of every layer, 0: none; for families that do not know `layer_types`.
void SetSlidingWindow(int32_t window, DecoderSpec& spec);
// The same of the layers that `layer_types` says, of all when config.json has no such list.
void ReadSlidingWindows(ConfigReader& config, int32_t window, DecoderSpec& spec);

// Qwen's window, 0: none; null says that, absent means the family's.
int32_t ReadQwenWindow(ConfigReader& config);

// The same of Qwen: without the list the layers from `max_window_layers` on slide, and none without
// `use_sliding_window`.
void ReadQwenSlidingWindows(ConfigReader& config, DecoderSpec& spec);

// The activation of this name in Hugging Face configs.
Activation ReadActivation(ConfigReader& config, std::string_view key, std::string_view fallback);

}  // namespace nereid::llm
