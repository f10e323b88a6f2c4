// A decoder-only transformer as data. Every executor builds its layers from a DecoderSpec. The
// files in architectures/ fill it from config.json. Value type. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/llm_core/sampling/sampling_params.h"
#include "nereid/status.h"

namespace nereid::llm {

// Root mean square norm, or layer norm with mean and variance.
enum class NormKind : uint8_t { kRms, kLayer };
// Rotary embedding of q and k, or a learned embedding added to the token embedding.
enum class PositionKind : uint8_t { kRope, kLearned };
// kGelu: exact, with erf; kGeluTanh: the tanh approximation; kQuickGelu: x * sigmoid(1.702 x).
enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kRelu, kQuickGelu };
// kGated: down(act(gate(x)) * up(x)). kPlain: down(act(up(x))).
enum class MlpKind : uint8_t { kGated, kPlain };

// The rotary embedding of one kind of layer. It rotates the pairs (i, i + dim / 2) of the first
// `dim` elements of a head. inv_freq includes the scaling for context extension.
struct RopeSpec {
  int32_t dim = 0;              // rotated elements of a head, even
  int32_t exponent_dim = 0;     // divisor of the exponents: dim, or dim - 1 for an odd size
  std::vector<float> inv_freq;  // [dim / 2]
  float magnitude = 1.0f;       // factor on cos and sin (yarn, longrope)
  // longrope: sequences of more tokens than this use inv_freq, others short_inv_freq. 0: there is
  // only inv_freq. An executor that does not distinguish them uses inv_freq.
  int32_t short_positions = 0;
  std::vector<float> short_inv_freq;
  // dynamic: inv_freq applies up to trained_positions tokens. Longer sequences use frequencies of a
  // base that grows with the length; see DynamicFrequencies. 0: the length does not matter. Set
  // only if DecoderSpec::max_positions is larger.
  int32_t trained_positions = 0;
  double dynamic_factor = 1.0;  // dynamic: the factor of the scaling
  double theta = 0.0;           // dynamic: the base
};

// Writes the frequencies for a sequence of `num_tokens` to `inv_freq` [dim / 2]. Requires
// num_tokens > rope.trained_positions.
void DynamicFrequencies(const RopeSpec& rope, int32_t num_tokens, float* inv_freq);

// The norm of all layers and the final one.
struct NormSpec {
  NormKind kind = NormKind::kRms;
  float epsilon = 1e-6f;
  float weight_offset = 0.0f;  // the effective weight is weight_offset + w (Gemma: 1)
  bool has_bias = false;
};

// The experts of layers with LayerSpec::is_moe.
struct MoeSpec {
  int32_t num_experts = 0;        // 0: no experts
  int32_t experts_per_token = 0;  // selected by the router
  int32_t intermediate_size = 0;  // of each expert
  bool normalize_top_k = true;    // softmax over the selected experts; false: over all of them
};

// What can differ between layers.
struct LayerSpec {
  int32_t sliding_window = 0;  // 0: full attention; otherwise a token sees this many last tokens
  int32_t rope = 0;            // index into DecoderSpec::ropes
  float score_scale = 1.0f;    // additional factor on DecoderSpec::attention_scale
  bool is_moe = false;         // experts instead of a single MLP
};

// The whole decoder. Sizes are counts of elements.
struct DecoderSpec {
  std::string architecture;  // the model_type
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t max_positions = 0;  // tokens of one sequence
  // The limit up to which max_positions may be raised, due to the scaling of the rope (linear,
  // dynamic, yarn).
  int32_t extended_positions = 0;

  NormSpec norm;
  PositionKind position = PositionKind::kRope;
  std::vector<RopeSpec> ropes;
  // Layers with a window always see this many first tokens of a sequence, as part of the window.
  int32_t num_sink_tokens = 0;
  std::vector<LayerSpec> layers;

  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool qk_norm = false;          // RMS norm over each head of q and k, before the rotary embedding
  float attention_scale = 0.0f;  // scores = q.k * attention_scale
  float attention_soft_cap = 0.0f;  // 0: none
  float logit_soft_cap = 0.0f;      // 0: none
  float embedding_scale = 1.0f;     // factor on the token embedding
  // Whether transformers applies the factor to inputs_embeds, too.
  bool scales_input_embeddings = true;

  MlpKind mlp = MlpKind::kGated;
  Activation activation = Activation::kSilu;
  bool mlp_bias = false;
  MoeSpec moe;

  bool parallel_residual = false;  // x + attention(norm1(x)) + mlp(norm2(x))
  bool post_norms = false;       // additional norms after attention and after the MLP (Gemma 2, 3)
  bool tied_embeddings = false;  // the head's weight is the token embedding

  std::vector<int32_t> end_ids;  // eos_token_id of generation_config.json, otherwise of config.json
  SamplingParams sampling_defaults;  // recommended by generation_config.json; greedy without it

  int32_t num_layers() const { return static_cast<int32_t>(layers.size()); }
  int64_t q_size() const { return int64_t{num_heads} * head_dim; }
  int64_t kv_size() const { return int64_t{num_kv_heads} * head_dim; }
  // The largest window of all layers in tokens; 0 if a layer has full attention.
  int32_t attention_window() const;
};

// Limits sequences to `max_positions` tokens, at most extended_positions; 0 keeps the value of
// config.json. If no sequence can exceed the context that a rope was trained on, a longrope keeps
// its short frequencies only and a dynamic rope becomes a plain one.
void LimitPositions(DecoderSpec& spec, int32_t max_positions);

// Reduces the attention windows of a decoder below those of its checkpoint.
// `windows`: comma-separated window sizes in tokens, repeated over the layers; empty for none. A
// layer keeps its own window if it is smaller. `num_sinks`: number of first tokens of a sequence
// that stay visible, as part of the window. INVALID_ARG names the parameter and the values.
Status LimitAttention(std::string_view windows, int32_t num_sinks, DecoderSpec& spec);

}  // namespace nereid::llm
