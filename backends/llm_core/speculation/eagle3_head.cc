// config.json and the tensors of an EAGLE-3 head.
#include "backends/llm_core/speculation/eagle3_head.h"

#include <cstring>

#include "backends/llm_core/model/architectures/llama_family.h"
#include "backends/llm_core/model/config_reader.h"
#include "base/json_reader.h"

namespace nereid::llm {
namespace {

constexpr const char* kWhere = "config.json";

// A file of `speculators` has the layer's sizes in a nested object.
ConfigReader LayerConfig(const nlohmann::json& json) {
  const auto nested = json.find("transformer_layer_config");
  nlohmann::json config = nested != json.end() && nested->is_object() ? *nested : json;
  config["num_hidden_layers"] = 1u;  // published heads say 1, or repeat the target's number
  return ConfigReader(std::move(config));
}

// Refuses options that change the equations. All known heads have their defaults.
Status RefuseOptions(ConfigReader& config) {
  for (const char* option : {"norm_before_fc", "fc_norm", "norm_output", "parallel_drafting"}) {
    if (!config.BoolOr(option, false)) continue;
    return UnsupportedError(kWhere, ": '", option, "' is true, expected false");
  }
  return config.status();
}

std::vector<int32_t> ReadAuxLayers(ConfigReader& config, int32_t num_layers) {
  constexpr const char* kKey = "eagle_aux_hidden_state_layer_ids";
  std::vector<int32_t> layers = config.Ids(kKey);
  if (layers.empty()) {
    ConfigReader nested = config.Object("eagle_config");
    layers = nested.Ids(kKey);
    config.Fail(nested.status());
  }
  if (layers.empty()) layers = {2, num_layers / 2, num_layers - 3};
  return layers;
}

Status CheckAuxLayers(const std::vector<int32_t>& layers, int32_t num_layers) {
  constexpr size_t kMost = 16;
  if (layers.size() > kMost) {
    return InvalidArgError(kWhere, ": ", layers.size(), " auxiliary layers, expected at most ",
                           kMost);
  }
  for (const int32_t layer : layers) {
    if (layer >= 0 && layer <= num_layers) continue;
    return InvalidArgError(kWhere, ": auxiliary layer ", layer, ": the target has ", num_layers,
                           " layers, expected 0 to ", num_layers);
  }
  return {};
}

Status CheckSizes(ConfigReader& config, const Eagle3Head& head, const DecoderSpec& target) {
  const int32_t wanted = config.SizeOr("target_hidden_size", head.model.spec.hidden_size);
  NEREID_RETURN_IF_ERROR(config.status());
  if (wanted != target.hidden_size) {
    return InvalidArgError("the head is for a model of hidden size ", wanted,
                           ", and the model has ", target.hidden_size);
  }
  if (head.model.spec.vocab_size != target.vocab_size) {
    return InvalidArgError("the head is for a vocabulary of ", head.model.spec.vocab_size,
                           " tokens, and the model has ", target.vocab_size);
  }
  if (head.draft_vocab_size > target.vocab_size) {
    return InvalidArgError(kWhere, ": draft_vocab_size is ", head.draft_vocab_size,
                           ", expected at most the vocabulary, ", target.vocab_size);
  }
  // The target's embedding is part of the layer's input.
  if (!head.has_embedding && head.model.spec.hidden_size != target.hidden_size) {
    return InvalidArgError("the head has hidden size ", head.model.spec.hidden_size,
                           " and no embed_tokens, and the model has ", target.hidden_size);
  }
  return {};
}

// The names are those of SafeAILab's files or of `speculators`'.
void MapWeights(const Checkpoint& checkpoint, int64_t feature_size, Eagle3Head& head) {
  const DecoderSpec& spec = head.model.spec;
  const int64_t hidden = spec.hidden_size;
  const std::string layer =
      checkpoint.Find("layers.0.self_attn.q_proj.weight") != nullptr ? "layers.0." : "midlayer.";
  WeightMap& map = head.model.map;
  const auto add = [&](int32_t number, WeightKind kind, WeightSource source) {
    map.sources[{number, kind, kNoExpert}] = std::move(source);
  };
  add(kNoLayer, WeightKind::kFeatureProjection, Matrix("fc.weight", hidden, feature_size));
  add(kNoLayer, WeightKind::kFinalNorm, Vector("norm.weight", hidden));
  add(kNoLayer, WeightKind::kLmHead, Matrix("lm_head.weight", head.draft_vocab_size, hidden));
  if (head.has_embedding) {
    add(kNoLayer, WeightKind::kTokenEmbedding,
        Matrix("embed_tokens.weight", spec.vocab_size, hidden));
  }
  add(0, WeightKind::kFeatureNorm, Vector(layer + "hidden_norm.weight", hidden));
  add(0, WeightKind::kInputNorm, Vector(layer + "input_layernorm.weight", hidden));
  add(0, WeightKind::kPreMlpNorm, Vector(layer + "post_attention_layernorm.weight", hidden));
  const std::string attention = layer + "self_attn.";
  add(0, WeightKind::kQ, Matrix(attention + "q_proj.weight", spec.q_size(), 2 * hidden));
  add(0, WeightKind::kK, Matrix(attention + "k_proj.weight", spec.kv_size(), 2 * hidden));
  add(0, WeightKind::kV, Matrix(attention + "v_proj.weight", spec.kv_size(), 2 * hidden));
  add(0, WeightKind::kAttentionOut, Matrix(attention + "o_proj.weight", hidden, spec.q_size()));
  const std::string mlp = layer + "mlp.";
  add(0, WeightKind::kGate, Matrix(mlp + "gate_proj.weight", spec.intermediate_size, hidden));
  add(0, WeightKind::kUp, Matrix(mlp + "up_proj.weight", spec.intermediate_size, hidden));
  add(0, WeightKind::kDown, Matrix(mlp + "down_proj.weight", hidden, spec.intermediate_size));
  map.ignored_suffixes = {"d2t", "t2d", ".rotary_emb.inv_freq", "verifier_lm_head.weight",
                          "verifier_norm.weight"};
  if (!head.has_embedding) map.ignored_suffixes.emplace_back("embed_tokens.weight");
}

// Draft id i is the target's i + d2t[i]. Without d2t, the vocabularies are the same.
Status ReadTargetIds(const Checkpoint& checkpoint, Eagle3Head& head) {
  const CheckpointTensor* const tensor = checkpoint.Find("d2t");
  const int32_t count = head.draft_vocab_size, vocab_size = head.model.spec.vocab_size;
  if (tensor == nullptr) {
    if (count != vocab_size) {
      return InvalidArgError("there is no tensor 'd2t', and draft_vocab_size is ", count,
                             ", expected the vocabulary, ", vocab_size);
    }
  } else if (tensor->type != CheckpointDataType::kI64 ||
             tensor->shape != std::vector<int64_t>{count}) {
    return InvalidArgError("tensor 'd2t': expected I64 [", count, "], got ",
                           Info(tensor->type).name, " ", ShapeText(tensor->shape));
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    if (tensor != nullptr) std::memcpy(&offset, tensor->bytes.data() + i * 8, sizeof(offset));
    if (offset < -i || offset >= vocab_size - i) {
      return InvalidArgError("tensor 'd2t': draft id ", i, " and offset ", offset,
                             " make no id of the vocabulary of ", vocab_size, " tokens");
    }
    head.target_ids.push_back(static_cast<int32_t>(i + offset));
  }
  return {};
}

}  // namespace

Result<Eagle3Head> ReadEagle3Head(const Checkpoint& checkpoint, const DecoderSpec& target) {
  const std::string where = StrCat("head '", checkpoint.directory(), "'");
  const auto read = [&]() -> Result<Eagle3Head> {
    NEREID_ASSIGN_OR_RETURN(nlohmann::json json,
                            ReadJsonObject<nlohmann::json>(checkpoint.config_json(), kWhere));
    Eagle3Head head;
    ConfigReader layer = LayerConfig(json);
    ReadLlamaConfig(layer, head.model.spec);
    NEREID_RETURN_IF_ERROR(layer.status());
    ConfigReader config(std::move(json));
    NEREID_RETURN_IF_ERROR(RefuseOptions(config));
    head.draft_vocab_size = config.SizeOr("draft_vocab_size", head.model.spec.vocab_size);
    head.norm_before_residual = config.BoolOr("norm_before_residual", false);
    head.aux_layers = ReadAuxLayers(config, target.num_layers());
    head.has_embedding = checkpoint.Find("embed_tokens.weight") != nullptr;
    NEREID_RETURN_IF_ERROR(config.status());
    NEREID_RETURN_IF_ERROR(CheckSizes(config, head, target));
    NEREID_RETURN_IF_ERROR(CheckAuxLayers(head.aux_layers, target.num_layers()));
    if (head.model.spec.num_heads % head.model.spec.num_kv_heads != 0) {
      return InvalidArgError(kWhere, ": ", head.model.spec.num_heads,
                             " attention heads are not a multiple of ",
                             head.model.spec.num_kv_heads, " key/value heads");
    }
    const int64_t feature_size = static_cast<int64_t>(head.aux_layers.size()) * target.hidden_size;
    MapWeights(checkpoint, feature_size, head);
    NEREID_ASSIGN_OR_RETURN(head.model.weights, ResolveWeights(head.model.map, checkpoint));
    head.model.spec.tied_embeddings = false;
    NEREID_RETURN_IF_ERROR(ReadTargetIds(checkpoint, head));
    return head;
  };
  Result<Eagle3Head> head = read();
  if (head.ok()) return head;
  return std::move(head).status().WithContext(where);
}

}  // namespace nereid::llm
