// A table of architectures, and a table of config keys for each naming scheme.
#include "backends/llm_core/checkpoint/trtllm_config.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "backends/llm_core/model/config_reader.h"
#include "base/json_reader.h"

namespace nereid::llm {
namespace {

using Json = nlohmann::json;

constexpr int32_t kMaxRanks = 64;

struct TrtLlmArchitecture {
  std::string_view name;
  std::string_view variant;  // gpt_variant; empty: none
  std::string_view model_type;
  TrtLlmNaming names = TrtLlmNaming::kLlama;
  std::string_view experts = "";
};
constexpr TrtLlmArchitecture kTrtLlmArchitectures[] = {
    {"LlamaForCausalLM", "", "llama"},
    {"MistralForCausalLM", "", "mistral"},
    {"MixtralForCausalLM", "", "mixtral", TrtLlmNaming::kLlama, "block_sparse_moe."},
    {"Qwen2ForCausalLM", "", "qwen2"},
    {"QWenForCausalLM", "", "qwen2"},
    {"Qwen3ForCausalLM", "", "qwen3"},
    {"Qwen3MoeForCausalLM", "", "qwen3_moe", TrtLlmNaming::kLlama, "mlp."},
    {"Phi3ForCausalLM", "", "phi3", TrtLlmNaming::kPhi3},
    {"Gemma2ForCausalLM", "", "gemma2"},
    {"Gemma3ForCausalLM", "", "gemma3_text"},
    {"GPTForCausalLM", "gpt2", "gpt2", TrtLlmNaming::kGpt},
    {"GPTForCausalLM", "santacoder", "gpt2", TrtLlmNaming::kGpt},
    {"GPTForCausalLM", "starcoder", "gpt2", TrtLlmNaming::kGpt},
    {"GPTForCausalLM", "starcoder2", "starcoder2", TrtLlmNaming::kStarCoder2},
};

Result<TrtLlmArchitecture> FindArchitecture(ConfigReader& config) {
  const std::string name = config.StringOr("architecture", "");
  const std::string variant = config.StringOr("gpt_variant", "");
  std::string known;
  for (const TrtLlmArchitecture& entry : kTrtLlmArchitectures) {
    if (entry.name == name && (entry.variant.empty() || entry.variant == variant)) return entry;
    known += StrCat(known.empty() ? "" : ", ", entry.name, entry.variant.empty() ? "" : " of ",
                    entry.variant);
  }
  return UnsupportedError("config.json of a TensorRT-LLM checkpoint: architecture '", name, "'",
                          variant.empty() ? "" : StrCat(" of '", variant, "'"),
                          " is not supported (known: ", known,
                          "): give the Hugging Face checkpoint directory it was made from");
}

// Older configs have moe_num_experts and similar keys instead of "moe".
ConfigReader ExpertsOf(const ConfigReader& config) {
  if (config.Has("moe")) return config.Object("moe");
  Json moe = Json::object();
  for (const char* key : {"num_experts", "top_k", "normalization_mode"}) {
    if (config.Has(StrCat("moe_", key))) moe[key] = config.json()[StrCat("moe_", key)];
  }
  return ConfigReader(moe);
}

// Returns 0 for an absent key or -1, which leave the value to the other size.
int32_t ReadMoeRanks(ConfigReader& mapping, std::string_view key) {
  const double ranks = mapping.NumberOr(key, -1.0);
  if (ranks >= -1.0 && ranks <= kMaxRanks && ranks == std::floor(ranks)) {
    return std::max(0, static_cast<int32_t>(ranks));
  }
  mapping.Fail(InvalidArgError("config.json: 'mapping.", key, "' is ", ranks, ", expected -1 to ",
                               kMaxRanks));
  return 0;
}

// One of the two sizes of expert parallelism may be absent, because their product is tp_size.
Status ReadRanks(ConfigReader& config, TrtLlmLayout& layout) {
  ConfigReader mapping = config.Object("mapping");
  layout.tp = mapping.SizeOr("tp_size", 1);
  layout.pp = mapping.SizeOr("pp_size", 1);
  const int32_t moe_ep = ReadMoeRanks(mapping, "moe_ep_size");
  const int32_t moe_tp = ReadMoeRanks(mapping, "moe_tp_size");
  NEREID_RETURN_IF_ERROR(mapping.status());
  if (layout.tp > kMaxRanks || layout.pp > kMaxRanks || layout.tp * layout.pp > kMaxRanks) {
    return InvalidArgError("config.json: 'mapping' of ", layout.tp, " x ", layout.pp,
                           " ranks, limit ", kMaxRanks);
  }
  layout.moe_ep = moe_ep > 0 ? moe_ep : moe_tp > 0 ? std::max(1, layout.tp / moe_tp) : 1;
  if (layout.tp % layout.moe_ep != 0) {
    return InvalidArgError("config.json: tp_size ", layout.tp, " is not a multiple of moe_ep_size ",
                           layout.moe_ep);
  }
  layout.moe_tp = layout.tp / layout.moe_ep;
  if (moe_tp > 0 && moe_tp != layout.moe_tp && !layout.experts.empty()) {
    return InvalidArgError("config.json: tp_size ", layout.tp, " is not moe_tp_size ", moe_tp,
                           " x moe_ep_size ", layout.moe_ep);
  }
  return Status::Ok();
}

Result<TrtLlmLayout> ReadLayout(ConfigReader& config, const TrtLlmArchitecture& architecture) {
  TrtLlmLayout layout;
  layout.names = architecture.names;
  layout.experts = architecture.experts;
  layout.num_layers = config.Count("num_hidden_layers", 1024);
  layout.vocab_size = config.Size("vocab_size");
  const int32_t heads = config.Size("num_attention_heads");
  const int32_t kv_heads = config.SizeOr("num_key_value_heads", heads);
  const int64_t head_size =
      config.SizeOr("head_size", std::max(1, config.Size("hidden_size") / heads));
  layout.splits_embedding = config.BoolOr("use_parallel_embedding", false);
  layout.embedding_by_columns = config.NumberOr("embedding_sharding_dim", 0) == 1;
  if (!layout.experts.empty()) {
    ConfigReader moe = ExpertsOf(config);
    layout.num_experts = moe.Count("num_experts", 1024);
    NEREID_RETURN_IF_ERROR(moe.status());
  }
  NEREID_RETURN_IF_ERROR(config.status());
  NEREID_RETURN_IF_ERROR(ReadRanks(config, layout));
  if (heads % layout.tp != 0 || layout.num_layers % layout.pp != 0 ||
      (kv_heads % layout.tp != 0 && layout.tp % kv_heads != 0)) {
    return InvalidArgError("config.json: ", heads, " heads, ", kv_heads, " key/value heads and ",
                           layout.num_layers, " layers do not divide by tp_size ", layout.tp,
                           " and pp_size ", layout.pp);
  }
  if (layout.num_experts % layout.moe_ep != 0) {
    return InvalidArgError("config.json: ", layout.num_experts,
                           " experts do not divide by moe_ep_size ", layout.moe_ep);
  }
  layout.q_rows = heads / layout.tp * head_size;
  layout.kv_copies = std::max(1, layout.tp / kv_heads);
  layout.kv_rows = std::max(1, kv_heads / layout.tp) * head_size;
  return layout;
}

using KeyPair = std::pair<const char*, const char*>;  // key of TensorRT-LLM, key of Hugging Face

constexpr KeyPair kCommonKeys[] = {{"vocab_size", "vocab_size"},
                                   {"share_embedding_table", "tie_word_embeddings"},
                                   {"eos_token_id", "eos_token_id"}};
constexpr KeyPair kLlamaKeys[] = {
    {"hidden_size", "hidden_size"},
    {"intermediate_size", "intermediate_size"},
    {"num_hidden_layers", "num_hidden_layers"},
    {"num_attention_heads", "num_attention_heads"},
    {"num_key_value_heads", "num_key_value_heads"},
    {"head_size", "head_dim"},
    {"max_position_embeddings", "max_position_embeddings"},
    {"norm_epsilon", "rms_norm_eps"},
    {"rotary_base", "rope_theta"},
    {"rotary_scaling", "rope_scaling"},
    {"rotary_pct", "partial_rotary_factor"},
    {"original_max_position_embeddings", "original_max_position_embeddings"},
    {"attn_bias", "attention_bias"},
    {"mlp_bias", "mlp_bias"},
    {"sliding_window", "sliding_window"},
    {"sliding_window_pattern", "sliding_window_pattern"},
    {"_sliding_window_pattern", "sliding_window_pattern"},
    {"rope_local_base_freq", "rope_local_base_freq"},
    {"query_pre_attn_scalar", "query_pre_attn_scalar"},
    {"moe_intermediate_size", "moe_intermediate_size"}};
constexpr KeyPair kStarCoder2Keys[] = {{"norm_epsilon", "norm_epsilon"}, {"bias", "use_bias"}};
constexpr KeyPair kGptKeys[] = {{"hidden_size", "n_embd"},
                                {"intermediate_size", "n_inner"},
                                {"num_hidden_layers", "n_layer"},
                                {"num_attention_heads", "n_head"},
                                {"num_key_value_heads", "num_key_value_heads"},
                                {"max_position_embeddings", "n_positions"},
                                {"norm_epsilon", "layer_norm_epsilon"}};

void CopyKeys(const ConfigReader& config, std::span<const KeyPair> keys, Json& out) {
  for (const auto& [from, to] : keys) {
    if (config.Has(from)) out[to] = config.json()[from];
  }
}

void TranslateExperts(ConfigReader& config, Json& out) {
  ConfigReader moe = ExpertsOf(config);
  const Json& keys = moe.json();
  if (moe.Has("num_experts")) out["num_experts"] = out["num_local_experts"] = keys["num_experts"];
  if (moe.Has("top_k")) out["num_experts_per_tok"] = keys["top_k"];
  // 0: none; 1: normalized. Other modes (sparse mixers) belong to other decoders.
  const double mode = moe.NumberOr("normalization_mode", 1);
  if (mode != 0 && mode != 1) {
    config.Fail(UnsupportedError("config.json: moe.normalization_mode is ", mode,
                                 ", which is not supported (known: 0, 1)"));
  }
  if (out["model_type"] == "mixtral" && mode == 0) {
    config.Fail(
        UnsupportedError("config.json: moe.normalization_mode of a Mixtral is 0, ", "expected 1"));
  }
  out["norm_topk_prob"] = mode == 1;
  config.Fail(moe.status());
}

Status TranslateQuantization(const ConfigReader& config, const TrtLlmArchitecture& architecture,
                             Json& out) {
  ConfigReader quantization = config.Object("quantization");
  const std::string algorithm = quantization.StringOr("quant_algo", "");
  NEREID_RETURN_IF_ERROR(quantization.status());
  if (algorithm.empty()) return Status::Ok();
  if (algorithm != "W4A16_AWQ") {
    return UnsupportedError("config.json: quant_algo '", algorithm,
                            "' is not supported (known: W4A16_AWQ)");
  }
  if (!architecture.experts.empty()) {
    return UnsupportedError("config.json: quant_algo '", algorithm, "' of ", architecture.name,
                            " is not supported: give a checkpoint in float16 or bfloat16");
  }
  if (quantization.BoolOr("has_zero_point", false)) {
    return UnsupportedError("config.json: quantization.has_zero_point is not supported");
  }
  out["quantization_config"] = {{"quant_method", "trtllm_awq"},
                                {"group_size", quantization.NumberOr("group_size", 128)}};
  return quantization.status();
}

// Some names of activations imply the gate.
std::string ActivationOf(ConfigReader& config) {
  const std::string name = config.StringOr("hidden_act", "silu");
  if (name == "swiglu") return "silu";
  if (name == "geglu") return "gelu_pytorch_tanh";
  return name;
}

void TranslateGemma(const ConfigReader& config, Json& out) {
  out["norm_weight_offset"] = 0;  // the conversion has already added 1
  out["tie_word_embeddings"] = true;
  out["hidden_activation"] = out["hidden_act"];
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    out[key] = config.Has(key) ? config.json()[key] : Json();
  }
}

// Only Phi-3 rotates a part of each head. For the other families, the key is ignored by plain
// ropes.
void RefusePartialRotary(ConfigReader& config, const TrtLlmArchitecture& architecture) {
  const double share = config.NumberOr("rotary_pct", 1.0);
  if (share == 1.0 || architecture.names == TrtLlmNaming::kPhi3) return;
  config.Fail(UnsupportedError("config.json: 'rotary_pct' is ", share,
                               ", which is not supported for ", architecture.name,
                               " (expected 1)"));
}

void TranslateLongRope(const ConfigReader& config, Json& out) {
  if (!config.Has("longrope_scaling_short_factors")) return;
  out["rope_scaling"] = {{"type", "longrope"},
                         {"short_factor", config.json()["longrope_scaling_short_factors"]},
                         {"long_factor", config.Has("longrope_scaling_long_factors")
                                             ? config.json()["longrope_scaling_long_factors"]
                                             : Json::array()}};
}

Result<std::string> Translate(ConfigReader& config, const TrtLlmArchitecture& architecture) {
  Json out = {{"model_type", architecture.model_type}};
  CopyKeys(config, kCommonKeys, out);
  const std::string activation = ActivationOf(config);
  if (architecture.names == TrtLlmNaming::kGpt) {
    CopyKeys(config, kGptKeys, out);
    out["activation_function"] = activation;
    out["split_projections"] = true;
    out["tie_word_embeddings"] = config.BoolOr("share_embedding_table", false);
    if (config.BoolOr("apply_query_key_layer_scaling", false)) {
      config.Fail(UnsupportedError("config.json: apply_query_key_layer_scaling is not supported"));
    }
  } else {
    CopyKeys(config, kLlamaKeys, out);
    RefusePartialRotary(config, architecture);
    out["hidden_act"] = activation;
    // If absent, these follow from the number of heads in TensorRT-LLM, whatever the family.
    const int32_t heads = config.Size("num_attention_heads");
    if (!config.Has("num_key_value_heads")) out["num_key_value_heads"] = heads;
    if (!config.Has("head_size")) {
      out["head_dim"] = std::max(1, config.Size("hidden_size") / heads);
    }
    if (architecture.model_type == "mistral" && !config.Has("sliding_window")) {
      out["sliding_window"] = nullptr;
    }
  }
  if (architecture.names == TrtLlmNaming::kStarCoder2) {
    CopyKeys(config, kStarCoder2Keys, out);
    out["tie_word_embeddings"] = config.BoolOr("share_embedding_table", false);
  }
  if (architecture.model_type.starts_with("gemma")) TranslateGemma(config, out);
  if (architecture.names == TrtLlmNaming::kPhi3) {
    out["split_projections"] = true;
    TranslateLongRope(config, out);
  }
  if (!architecture.experts.empty()) TranslateExperts(config, out);
  NEREID_RETURN_IF_ERROR(TranslateQuantization(config, architecture, out));
  NEREID_RETURN_IF_ERROR(config.status());
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Result<TrtLlmConfig> ReadTrtLlmConfig(const std::string& config_json) {
  NEREID_ASSIGN_OR_RETURN(Json json, ReadJsonObject<Json>(config_json, "config.json"));
  ConfigReader config(std::move(json));
  TrtLlmConfig out;
  NEREID_ASSIGN_OR_RETURN(const TrtLlmArchitecture architecture, FindArchitecture(config));
  NEREID_ASSIGN_OR_RETURN(out.layout, ReadLayout(config, architecture));
  NEREID_ASSIGN_OR_RETURN(out.config_json, Translate(config, architecture));
  return out;
}

}  // namespace nereid::llm
