// A decoder-only transformer as data: what every executor builds its layers from. Read from
// config.json by one small file an architecture (architectures/). Value type. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/llm_core/sampling/sampling_params.h"

namespace nereid::llm {

enum class NormKind : uint8_t { kRms, kLayer };
enum class PositionKind : uint8_t { kRope, kLearned };
enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kRelu, kQuickGelu };
// kGated: down(act(gate(x)) * up(x)); kPlain: down(act(up(x))).
enum class MlpKind : uint8_t { kGated, kPlain };

// Rotary embedding of one kind of layer: rotate-half pairs (i, i + dim / 2) of the first `dim`
// elements of a head. inv_freq already holds the context-extension scaling.
struct RopeSpec {
  int32_t dim = 0;
  int32_t exponent_dim = 0;     // what exponents are parts of: dim, or the odd number before it
  std::vector<float> inv_freq;  // [dim / 2]
  float magnitude = 1.0f;       // multiplies cos and sin (yarn, longrope)
  // longrope: inv_freq are the frequencies of sequences longer than this, short_inv_freq those of
  // shorter ones; 0: there is one set. An executor that can not tell them apart takes inv_freq.
  int32_t short_positions = 0;
  std::vector<float> short_inv_freq;
  // dynamic: inv_freq are those of up to trained_positions tokens; longer ones have the frequencies
  // of a base that grows with them (DynamicFrequencies). 0: the length does not matter. Only where
  // DecoderSpec::max_positions allows longer ones.
  int32_t trained_positions = 0;
  double dynamic_factor = 1.0;
  double theta = 0.0;
};

// The frequencies of a sequence of `num_tokens`, more than rope.trained_positions, into `inv_freq`
// [dim / 2].
void DynamicFrequencies(const RopeSpec& rope, int32_t num_tokens, float* inv_freq);

struct NormSpec {
  NormKind kind = NormKind::kRms;
  float epsilon = 1e-6f;
  float weight_offset = 0.0f;  // the weight is weight_offset + w (Gemma: 1)
  bool has_bias = false;
};

struct MoeSpec {
  int32_t num_experts = 0;  // 0: dense
  int32_t experts_per_token = 0;
  int32_t intermediate_size = 0;
  bool normalize_top_k = true;
};

struct LayerSpec {
  int32_t sliding_window = 0;  // 0: full attention; else a token sees the last `window` tokens
  int32_t rope = 0;            // index into DecoderSpec::ropes
  float score_scale = 1.0f;    // on top of DecoderSpec::attention_scale
  bool is_moe = false;
};

struct DecoderSpec {
  std::string architecture;
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t max_positions = 0;
  // What max_positions may be raised to: the rope stretches so far (linear, dynamic, yarn).
  int32_t extended_positions = 0;

  NormSpec norm;
  PositionKind position = PositionKind::kRope;
  std::vector<RopeSpec> ropes;
  // Layers with a window see these tokens at the beginning always, as part of it.
  int32_t num_sink_tokens = 0;
  std::vector<LayerSpec> layers;

  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool qk_norm = false;             // RMS over each head of q and k, before rope
  float attention_scale = 0.0f;     // scores = q.k * attention_scale
  float attention_soft_cap = 0.0f;  // 0: none
  float logit_soft_cap = 0.0f;      // 0: none
  float embedding_scale = 1.0f;

  MlpKind mlp = MlpKind::kGated;
  Activation activation = Activation::kSilu;
  bool mlp_bias = false;
  MoeSpec moe;

  bool parallel_residual = false;  // x + attention(norm1(x)) + mlp(norm2(x))
  bool post_norms = false;         // a norm after attention and after the MLP too (Gemma 2, 3)
  bool tied_embeddings = false;

  std::vector<int32_t> end_ids;      // eos_token_id of generation_config.json, else of config.json
  SamplingParams sampling_defaults;  // what generation_config.json recommends; greedy without it

  int32_t num_layers() const { return static_cast<int32_t>(layers.size()); }
  int64_t q_size() const { return int64_t{num_heads} * head_dim; }
  int64_t kv_size() const { return int64_t{num_kv_heads} * head_dim; }
};

// Serves sequences of at most `max_positions` tokens (0: max_positions as config.json has them),
// over which it may go as far as extended_positions. Where none of them can be longer than the
// context that a rope was trained on, its short factors alone are left of a longrope, and nothing
// of a dynamic one.
void LimitPositions(DecoderSpec& spec, int32_t max_positions);

}  // namespace nereid::llm
