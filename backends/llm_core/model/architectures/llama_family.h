// Shared by the Llama family: the keys of config.json and tensor names such as
// model.layers.N.self_attn.q_proj.weight. [load thread]
#pragma once

#include <string>

#include "backends/llm_core/model/config_reader.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "backends/llm_core/model/rope.h"
#include "backends/llm_core/model/weight_map.h"

namespace nereid::llm {

// Limits on the allocations that an untrusted config.json can cause.
inline constexpr int32_t kMaxLayers = 1024;
inline constexpr int32_t kMaxExperts = 1024;  // per layer
inline constexpr int32_t kMaxExpertsOfAllLayers = 1 << 16;

// A family's values for keys that its configs leave out.
struct LlamaDefaults {
  RopeDefaults rope = {};
  double norm_epsilon = 1e-6;
  int32_t head_dim = 0;      // 0: hidden_size / num_attention_heads
  int32_t num_kv_heads = 0;  // 0: as many as heads; null means that in every family
};

// Reads sizes, heads, rope, activation and tied embeddings. Keeps the defaults: RMS norm, no
// biases, full attention.
void ReadLlamaConfig(ConfigReader& config, DecoderSpec& spec, const LlamaDefaults& defaults = {});

// "model.layers.<layer>."
std::string LlamaLayerPrefix(int32_t layer);

// Maps embedding, final norm and head; input and post-attention norms; attention with the biases
// and q/k norms of the spec.
void MapLlamaDecoder(const DecoderSpec& spec, WeightMap& map);
// Maps mlp.{gate,up,down}_proj of every layer that is not MoE.
void MapLlamaMlp(const DecoderSpec& spec, WeightMap& map);

// The number of experts per layer, read from `key`. Requires that the layers are set.
int32_t ReadExpertCount(ConfigReader& config, std::string_view key, const DecoderSpec& spec);

// Sets the window of every layer; 0: none. For families without `layer_types`.
void SetSlidingWindow(int32_t window, DecoderSpec& spec);
// Sets the window of the layers that `layer_types` selects, or of all layers without that list.
void ReadSlidingWindows(ConfigReader& config, int32_t window, DecoderSpec& spec);

// Qwen's window. 0: none. Null means none, an absent key means the family's default.
int32_t ReadQwenWindow(ConfigReader& config);

// The same for Qwen: without `layer_types`, the layers from `max_window_layers` on have the window,
// and none without `use_sliding_window`.
void ReadQwenSlidingWindows(ConfigReader& config, DecoderSpec& spec);

// The activation with this name in Hugging Face configs.
Activation ReadActivation(ConfigReader& config, std::string_view key, std::string_view fallback);

}  // namespace nereid::llm
