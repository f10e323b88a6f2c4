// The table of architectures, and checks that apply to all of them.
#include "backends/llm_core/model/architecture.h"

#include <algorithm>

#include "backends/llm_core/model/architectures/architectures.h"
#include "base/json_reader.h"

namespace nereid::llm {
namespace {

struct ArchitectureEntry {
  std::string_view model_type;
  std::string_view class_name;  // as in `architectures`
  ArchitectureBuilder build;
};

constexpr ArchitectureEntry kArchitectures[] = {
    {"gemma2", "Gemma2ForCausalLM", BuildGemma2},
    {"gemma3", "Gemma3ForConditionalGeneration", BuildGemma3Vision},
    {"gemma3_text", "Gemma3ForCausalLM", BuildGemma3},
    {"gpt2", "GPT2LMHeadModel", BuildGpt2},
    {"gpt_bigcode", "GPTBigCodeForCausalLM", BuildGptBigCode},
    {"gpt_neox", "GPTNeoXForCausalLM", BuildGptNeoX},
    {"llama", "LlamaForCausalLM", BuildLlama},
    {"mistral", "MistralForCausalLM", BuildMistral},
    {"mixtral", "MixtralForCausalLM", BuildMixtral},
    {"phi3", "Phi3ForCausalLM", BuildPhi3},
    {"qwen2", "Qwen2ForCausalLM", BuildQwen2},
    {"qwen3", "Qwen3ForCausalLM", BuildQwen3},
    {"qwen3_moe", "Qwen3MoeForCausalLM", BuildQwen3Moe},
    {"starcoder2", "Starcoder2ForCausalLM", BuildStarCoder2},
};

Result<ArchitectureBuilder> FindBuilder(const std::string& model_type, ConfigReader& config) {
  std::string known;
  for (const ArchitectureEntry& entry : kArchitectures) {
    known += StrCat(known.empty() ? "" : ", ", entry.model_type);
    if (entry.model_type != model_type) continue;
    // If `architectures` is present, it must contain the class of the model_type. A classifier, or
    // other layers under a copied model_type, would give wrong results.
    const std::vector<std::string> classes = config.Strings("architectures");
    NEREID_RETURN_IF_ERROR(config.status());
    if (classes.empty() ||
        std::find(classes.begin(), classes.end(), entry.class_name) != classes.end()) {
      return entry.build;
    }
    return InvalidArgError("config.json: 'architectures' is ",
                           ShowJson(config.json()["architectures"]), ", but model_type '",
                           model_type, "' is '", entry.class_name, "'");
  }
  return UnsupportedError("config.json: model_type '", model_type,
                          "' is not supported (known: ", known, ")");
}

// Rejects inconsistent sizes that would make an executor access memory out of bounds.
Status CheckSpec(const DecoderSpec& spec) {
  if (spec.num_heads % spec.num_kv_heads != 0) {
    return InvalidArgError("config.json: ", spec.num_heads,
                           " attention heads are not a multiple of ", spec.num_kv_heads,
                           " key/value heads");
  }
  if (spec.position == PositionKind::kLearned && spec.q_size() != spec.hidden_size) {
    return InvalidArgError("config.json: hidden size ", spec.hidden_size, " is not a multiple of ",
                           spec.num_heads, " heads");
  }
  // Executors compute products of these sizes in 32 bits.
  constexpr int64_t kMaxProduct = 1 << 30;
  const int64_t rows = static_cast<int64_t>(spec.num_heads) * spec.head_dim;
  if (rows > kMaxProduct || spec.hidden_size > (1 << 20) || spec.intermediate_size > (1 << 24)) {
    return InvalidArgError("config.json: sizes out of range: hidden_size ", spec.hidden_size,
                           ", intermediate_size ", spec.intermediate_size, ", ", spec.num_heads,
                           " heads of ", spec.head_dim);
  }
  if (spec.moe.num_experts > 0 && spec.moe.experts_per_token > spec.moe.num_experts) {
    return InvalidArgError("config.json: ", spec.moe.experts_per_token,
                           " experts per token, but only ", spec.moe.num_experts);
  }
  return Status::Ok();
}

constexpr double kMaxNgramSize = 1 << 24;

// Reads the recommendations of generation_config.json: penalties always, other sampling rules only
// with `do_sample`. Rules that it does not mention are off.
void ReadSamplingDefaults(ConfigReader& generation, DecoderSpec& spec) {
  SamplingParams& sampling = spec.sampling_defaults;
  sampling.repetition_penalty =
      static_cast<float>(generation.NumberOr("repetition_penalty", sampling.repetition_penalty));
  sampling.no_repeat_ngram_size = static_cast<int32_t>(
      std::clamp(generation.NumberOr("no_repeat_ngram_size", 0.0), 0.0, kMaxNgramSize));
  if (!generation.BoolOr("do_sample", false)) return;
  sampling.temperature = static_cast<float>(generation.NumberOr("temperature", 1.0));
  sampling.top_k = static_cast<int32_t>(
      std::clamp(generation.NumberOr("top_k", 0.0), 0.0, static_cast<double>(spec.vocab_size)));
  sampling.top_p = static_cast<float>(generation.NumberOr("top_p", 1.0));
  sampling.min_p = static_cast<float>(generation.NumberOr("min_p", 0.0));
}

Status ReadGenerationConfig(const Checkpoint& checkpoint, ConfigReader& config, DecoderSpec& spec) {
  // Otherwise the end ids of a nested text model stay, if any.
  if (config.Has("eos_token_id")) spec.end_ids = config.Ids("eos_token_id");
  if (checkpoint.generation_config_json().empty()) return config.status();
  constexpr const char* kFile = "generation_config.json";
  NEREID_ASSIGN_OR_RETURN(nlohmann::json json, ReadJsonObject<nlohmann::json>(
                                                   checkpoint.generation_config_json(), kFile));
  ConfigReader generation(std::move(json), kFile);
  if (generation.Has("eos_token_id")) spec.end_ids = generation.Ids("eos_token_id");
  ReadSamplingDefaults(generation, spec);
  NEREID_RETURN_IF_ERROR(generation.status());
  return CheckSamplingParams(spec.sampling_defaults, spec.vocab_size)
      .WithContext("generation_config.json");
}

Result<DecoderModel> ReadSpec(const Checkpoint& checkpoint, bool supports_quantized) {
  const std::string where = StrCat("checkpoint '", checkpoint.directory(), "'");
  NEREID_ASSIGN_OR_RETURN(
      nlohmann::json json,
      ReadJsonObject<nlohmann::json>(checkpoint.config_json(), StrCat(where, ": config.json")));
  ConfigReader config(std::move(json));
  DecoderModel model;
  const std::string model_type = config.StringOr("model_type", "");
  const auto build = [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(model.quantization, ReadQuantization(config));
    if (model.quantization.method != QuantMethod::kNone && !supports_quantized) {
      return UnsupportedError("config.json: quantized weights are not supported by this backend: ",
                              "give a checkpoint in F32, F16 or BF16");
    }
    NEREID_ASSIGN_OR_RETURN(const ArchitectureBuilder builder, FindBuilder(model_type, config));
    builder(config, model.spec, model.map);
    model.spec.architecture = model_type;
    NEREID_RETURN_IF_ERROR(config.status());
    NEREID_RETURN_IF_ERROR(CheckSpec(model.spec));
    return ReadGenerationConfig(checkpoint, config, model.spec);
  };
  NEREID_RETURN_IF_ERROR(build().WithContext(where));
  return model;
}

}  // namespace

Result<DecoderModel> ReadDecoderSpec(const Checkpoint& checkpoint, bool supports_quantized) {
  return ReadSpec(checkpoint, supports_quantized);
}

Result<DecoderModel> ReadDecoder(const Checkpoint& checkpoint, bool supports_quantized) {
  NEREID_ASSIGN_OR_RETURN(DecoderModel model, ReadSpec(checkpoint, supports_quantized));
  NEREID_ASSIGN_OR_RETURN(model.weights, ResolveWeights(model.map, checkpoint, model.quantization));
  // The checkpoint takes precedence over its config.
  model.spec.tied_embeddings &= !model.weights.contains({kNoLayer, WeightKind::kLmHead, kNoExpert});
  return model;
}

}  // namespace nereid::llm
