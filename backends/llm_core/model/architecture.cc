// The table of architectures, and what is checked for all of them.
#include "llm_core/model/architecture.h"

#include "llm_core/model/architectures/architectures.h"

namespace nereid::llm {
namespace {

struct Entry {
  std::string_view model_type;
  ArchitectureBuilder build;
};

constexpr Entry kArchitectures[] = {
    {"gemma2", BuildGemma2},
    {"gemma3_text", BuildGemma3},
    {"gpt2", BuildGpt2},
    {"gpt_bigcode", BuildGptBigCode},
    {"gpt_neox", BuildGptNeoX},
    {"llama", BuildLlama},
    {"mistral", BuildMistral},
    {"mixtral", BuildMixtral},
    {"phi3", BuildPhi3},
    {"qwen2", BuildQwen2},
    {"qwen3", BuildQwen3},
    {"qwen3_moe", BuildQwen3Moe},
    {"starcoder2", BuildStarCoder2},
};

Result<ArchitectureBuilder> FindBuilder(const std::string& model_type) {
  std::string known;
  for (const Entry& entry : kArchitectures) {
    if (entry.model_type == model_type) return entry.build;
    known += StrCat(known.empty() ? "" : ", ", entry.model_type);
  }
  return UnsupportedError("config.json: model_type '", model_type,
                          "' is not supported (known: ", known, ")");
}

Status CheckQuantization(const ConfigReader& config) {
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    if (!config.Has(key)) continue;
    ConfigReader quantization = config.Object(key);
    return UnsupportedError("config.json: '", key, "' (",
                            quantization.TextOr("quant_method", "unknown method"),
                            ") is not supported: give a checkpoint in F32, F16 or BF16");
  }
  return Status::Ok();
}

// Contradictions that would lead an executor out of its arrays.
Status CheckSpec(const DecoderSpec& spec) {
  if (spec.num_heads % spec.num_kv_heads != 0) {
    return InvalidArgError("config.json: ", spec.num_heads, " attention heads are no multiple of ",
                           spec.num_kv_heads, " key/value heads");
  }
  if (spec.position == PositionKind::kLearned && spec.q_size() != spec.hidden_size) {
    return InvalidArgError("config.json: hidden size ", spec.hidden_size, " is no multiple of ",
                           spec.num_heads, " heads");
  }
  // Sizes whose products are taken in 32 bits by the executors.
  constexpr int64_t kMaxProduct = 1 << 30;
  const int64_t rows = static_cast<int64_t>(spec.num_heads) * spec.head_dim;
  if (rows > kMaxProduct || spec.hidden_size > (1 << 20) || spec.intermediate_size > (1 << 24)) {
    return InvalidArgError("config.json: sizes out of range: hidden_size ", spec.hidden_size,
                           ", intermediate_size ", spec.intermediate_size, ", ", spec.num_heads,
                           " heads of ", spec.head_dim);
  }
  if (spec.moe.num_experts > 0 && spec.moe.experts_per_token > spec.moe.num_experts) {
    return InvalidArgError("config.json: ", spec.moe.experts_per_token, " experts a token of ",
                           spec.moe.num_experts);
  }
  return Status::Ok();
}

Status ReadEndIds(const Checkpoint& checkpoint, ConfigReader& config, DecoderSpec& spec) {
  spec.end_ids = config.Ids("eos_token_id");
  if (checkpoint.generation_config_json().empty()) return config.status();
  ConfigReader generation(
      nlohmann::json::parse(checkpoint.generation_config_json(), nullptr, false));
  if (!generation.json().is_object()) {
    return InvalidArgError("generation_config.json is not a JSON object");
  }
  if (generation.Has("eos_token_id")) spec.end_ids = generation.Ids("eos_token_id");
  return generation.status();
}

}  // namespace

Result<DecoderModel> ReadDecoder(const Checkpoint& checkpoint) {
  ConfigReader config(nlohmann::json::parse(checkpoint.config_json(), nullptr, false));
  const std::string where = StrCat("checkpoint '", checkpoint.directory(), "'");
  if (!config.json().is_object()) {
    return InvalidArgError(where, ": config.json is not a JSON object");
  }
  DecoderModel model;
  WeightMap map;
  const std::string model_type = config.TextOr("model_type", "");
  const auto build = [&]() -> Status {
    NEREID_RETURN_IF_ERROR(CheckQuantization(config));
    NEREID_ASSIGN_OR_RETURN(const ArchitectureBuilder builder, FindBuilder(model_type));
    builder(config, model.spec, map);
    model.spec.architecture = model_type;
    NEREID_RETURN_IF_ERROR(config.status());
    NEREID_RETURN_IF_ERROR(CheckSpec(model.spec));
    return ReadEndIds(checkpoint, config, model.spec);
  };
  NEREID_RETURN_IF_ERROR(build().WithContext(where));
  NEREID_ASSIGN_OR_RETURN(model.weights, ResolveWeights(map, checkpoint));
  return model;
}

}  // namespace nereid::llm
