// Matches the tensors of PEFT with the modules of the decoder.
#include "backends/llm_core/lora/peft_adapter.h"

#include <re2/re2.h>

#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "backends/llm_core/model/config_reader.h"
#include "base/file_content.h"
#include "base/json_reader.h"

namespace nereid::llm {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr size_t kMaxPatterns = 4096;

// rank_pattern or alpha_pattern: values for the modules whose path ends with a match of the key.
class ModulePattern {
 public:
  Status Read(ConfigReader& config, const char* key) {
    if (!config.Has(key)) return Status::Ok();
    const nlohmann::json& table = config.json()[key];
    if (!table.is_object() || table.size() > kMaxPatterns) {
      return InvalidArgError(kPeftConfigFile, ": '", key, "' is ", ShowJson(table),
                             ", expected an object of at most ", kMaxPatterns, " numbers");
    }
    RE2::Options options;
    options.set_log_errors(false);
    for (const auto& [pattern, value] : table.items()) {
      auto regex = std::make_unique<RE2>(StrCat("(.*\\.)?(?:", pattern, ")"), options);
      if (!regex->ok() || !value.is_number()) {
        return InvalidArgError(kPeftConfigFile, ": '", key, "' has '", pattern,
                               "': ", ShowJson(value),
                               ", expected a pattern of modules and a number",
                               regex->ok() ? "" : StrCat(" (", regex->error(), ")"));
      }
      rules_.emplace_back(std::move(regex), value.get<double>());
    }
    return Status::Ok();
  }
  // The value of the first key that matches, as PEFT chooses it.
  double ValueFor(const std::string& module, double otherwise) const {
    for (const auto& [regex, value] : rules_) {
      if (RE2::FullMatch(module, *regex)) return value;
    }
    return otherwise;
  }

 private:
  std::vector<std::pair<std::unique_ptr<RE2>, double>> rules_;
};

struct PeftConfig {
  double rank = 8.0;
  double alpha = 8.0;
  bool scales_by_root = false;  // use_rslora
  ModulePattern ranks, alphas;

  float ScaleOf(const std::string& module, int64_t rank_of_module) const {
    const auto r = static_cast<double>(rank_of_module);
    return static_cast<float>(alphas.ValueFor(module, alpha) / (scales_by_root ? std::sqrt(r) : r));
  }
};

bool IsSet(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>();
  return !value.is_null() && !((value.is_array() || value.is_object()) && value.empty());
}

// Variants of LoRA that compute something else, and weights beside the linear modules.
Status RefuseVariants(ConfigReader& config) {
  const std::string type = config.StringOr("peft_type", "LORA");
  NEREID_RETURN_IF_ERROR(config.status());
  if (type != "LORA") {
    return UnsupportedError(kPeftConfigFile, ": 'peft_type' is '", type,
                            "': not supported, expected LORA");
  }
  constexpr const char* kMustBeUnset[] = {"use_dora",
                                          "modules_to_save",
                                          "lora_bias",
                                          "use_qalora",
                                          "use_bdlora",
                                          "layer_replication",
                                          "target_parameters",
                                          "arrow_config",
                                          "trainable_token_indices",
                                          "alora_invocation_tokens"};
  for (const char* key : kMustBeUnset) {
    const auto found = config.json().find(key);
    if (found == config.json().end() || !IsSet(*found)) continue;
    return UnsupportedError(kPeftConfigFile, ": '", key, "' is ", ShowJson(*found),
                            ": not supported");
  }
  const std::string bias = config.StringOr("bias", "none");
  NEREID_RETURN_IF_ERROR(config.status());
  if (bias == "none") return Status::Ok();
  return UnsupportedError(kPeftConfigFile, ": 'bias' is '", bias,
                          "': not supported, expected none");
}

// target_modules is a name, a pattern, "all-linear" or a list of names. The tensors say which
// modules the adapter changes, so only its type is checked.
Status CheckTargetModules(const ConfigReader& config) {
  const auto found = config.json().find("target_modules");
  if (found == config.json().end() || found->is_null() || found->is_string()) return Status::Ok();
  if (found->is_array()) {
    bool are_names = true;
    for (const nlohmann::json& name : *found) are_names = are_names && name.is_string();
    if (are_names) return Status::Ok();
  }
  return InvalidArgError(kPeftConfigFile, ": 'target_modules' is ", ShowJson(*found),
                         ", expected a name, a pattern or a list of names");
}

Result<PeftConfig> ReadPeftConfig(std::string_view text) {
  NEREID_ASSIGN_OR_RETURN(nlohmann::json json,
                          ReadJsonObject<nlohmann::json>(text, kPeftConfigFile));
  ConfigReader config(std::move(json), kPeftConfigFile);
  NEREID_RETURN_IF_ERROR(RefuseVariants(config));
  NEREID_RETURN_IF_ERROR(CheckTargetModules(config));
  PeftConfig result;
  result.rank = config.NumberOr("r", result.rank);
  result.alpha = config.NumberOr("lora_alpha", result.alpha);
  result.scales_by_root = config.BoolOr("use_rslora", false);
  NEREID_RETURN_IF_ERROR(config.status());
  NEREID_RETURN_IF_ERROR(result.ranks.Read(config, "rank_pattern"));
  NEREID_RETURN_IF_ERROR(result.alphas.Read(config, "alpha_pattern"));
  return result;
}

// The two tensors of a module.
struct TensorPair {
  std::string a_name, b_name;
  const CheckpointTensor* a = nullptr;
  const CheckpointTensor* b = nullptr;
};
using TensorPairs = std::map<std::string, TensorPair>;  // by the module's path

// Removes `suffix` and, before it, nothing or ".default", the name that PEFT gives a single
// adapter.
std::optional<std::string_view> WithoutSuffix(std::string_view name, std::string_view part) {
  for (const std::string& suffix : {StrCat(part, ".weight"), StrCat(part, ".default.weight")}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return std::nullopt;
}

Status RefuseTensor(const std::string& name) {
  if (name.find("lora_embedding_") != std::string::npos) {
    return UnsupportedError("tensor '", name, "' belongs to an embedding: not supported");
  }
  if (name.find("lora_magnitude_vector") != std::string::npos) {
    return UnsupportedError("tensor '", name, "' belongs to DoRA: not supported");
  }
  if (name.ends_with(".bias")) {
    return UnsupportedError("tensor '", name, "' is a bias: not supported");
  }
  return UnsupportedError(
      "tensor '", name, "' is neither lora_A.weight nor lora_B.weight of a module: not supported");
}

Result<TensorPairs> FindPairs(const TensorMap& tensors) {
  constexpr std::string_view kPrefix = "base_model.model.";
  TensorPairs pairs;
  for (const auto& [name, tensor] : tensors) {
    std::string_view path = name;
    if (path.starts_with(kPrefix)) path.remove_prefix(kPrefix.size());
    const auto a = WithoutSuffix(path, ".lora_A"), b = WithoutSuffix(path, ".lora_B");
    if (!a && !b) return RefuseTensor(name);
    TensorPair& pair = pairs[std::string(a ? *a : *b)];
    const CheckpointTensor*& place = a ? pair.a : pair.b;
    if (place != nullptr) {
      return InvalidArgError("tensors '", a ? pair.a_name : pair.b_name, "' and '", name,
                             "' are the same matrix of a module");
    }
    place = &tensor;
    (a ? pair.a_name : pair.b_name) = name;
  }
  if (pairs.empty()) return InvalidArgError(kPeftWeightsFile, " has no tensors");
  return pairs;
}

Status WrongShape(const std::string& tensor, const CheckpointTensor& found, int64_t rows,
                  int64_t columns, std::string_view why) {
  return InvalidArgError("tensor '", tensor, "' is ", ShapeText(found.shape), ", expected ",
                         ShapeText(std::vector<int64_t>{rows, columns}), why);
}

Status CheckShapes(const std::string& path, const TensorPair& pair, const LoraModule& module,
                   const PeftConfig& config, int32_t max_rank) {
  if (pair.a == nullptr || pair.b == nullptr) {
    return InvalidArgError("module '", path, "' has tensor '",
                           pair.a != nullptr ? pair.a_name : pair.b_name, "', but no ",
                           pair.a != nullptr ? "lora_B" : "lora_A");
  }
  const double configured = config.ranks.ValueFor(path, config.rank);
  const int64_t rank =
      configured >= 1.0 && configured <= 1 << 24 ? static_cast<int64_t>(configured) : 0;
  if (rank == 0 || static_cast<double>(rank) != configured) {
    return InvalidArgError(kPeftConfigFile, ": the rank of module '", path, "' is ", configured,
                           ", expected a whole number of at least 1");
  }
  if (pair.a->shape != std::vector<int64_t>{rank, module.columns}) {
    return WrongShape(pair.a_name, *pair.a, rank, module.columns,
                      ": the rank, and the inputs of the model's module");
  }
  if (pair.b->shape != std::vector<int64_t>{module.rows, rank}) {
    return WrongShape(pair.b_name, *pair.b, module.rows, rank,
                      ": the outputs of the model's module, and the rank");
  }
  if (rank <= max_rank) return Status::Ok();
  return InvalidArgError("tensor '", pair.a_name, "' ", ShapeText(pair.a->shape), " has rank ",
                         rank, ", the maximum is ", max_rank, " (lora_cache_max_adapter_size)");
}

Status AddModule(const std::string& path, const TensorPair& pair, const LoraModule& module,
                 float scale, LoraBuilder& builder) {
  LoraDelta delta;
  delta.scale = scale;
  NEREID_ASSIGN_OR_RETURN(const LoraMatrix a, LoraBuilder::View(pair.a_name, *pair.a));
  NEREID_ASSIGN_OR_RETURN(const LoraMatrix b, LoraBuilder::View(pair.b_name, *pair.b));
  delta.a = builder.Copy(a);
  for (const LoraModule::Part& part : module.parts) {
    delta.b = builder.CopyRows(b, part.source);
    NEREID_RETURN_IF_ERROR(builder.Add(part.key, path, delta));
  }
  return Status::Ok();
}

Result<std::shared_ptr<const LoraAdapter>> Read(const std::string& name, const std::string& folder,
                                                const LoraTargets& targets, int32_t max_rank) {
  NEREID_ASSIGN_OR_RETURN(const std::string config,
                          ReadFile(StrCat(folder, "/", kPeftConfigFile), kMaxConfigBytes));
  NEREID_ASSIGN_OR_RETURN(const SafetensorsFile file,
                          SafetensorsFile::Open(StrCat(folder, "/", kPeftWeightsFile)));
  Result<std::shared_ptr<const LoraAdapter>> adapter =
      MakePeftAdapter(name, config, file.tensors(), targets, max_rank);
  NEREID_RETURN_IF_ERROR(file.file().CheckIntact());
  return adapter;
}

}  // namespace

Result<std::shared_ptr<const LoraAdapter>> MakePeftAdapter(const std::string& name,
                                                           std::string_view config_json,
                                                           const TensorMap& tensors,
                                                           const LoraTargets& targets,
                                                           int32_t max_rank) {
  NEREID_ASSIGN_OR_RETURN(const PeftConfig config, ReadPeftConfig(config_json));
  NEREID_ASSIGN_OR_RETURN(const TensorPairs pairs, FindPairs(tensors));
  LoraBuilder builder(name, targets.num_layers());
  for (const auto& [path, pair] : pairs) {
    NEREID_ASSIGN_OR_RETURN(const LoraModule* module, targets.Find(path));
    NEREID_RETURN_IF_ERROR(CheckShapes(path, pair, *module, config, max_rank));
    NEREID_RETURN_IF_ERROR(
        AddModule(path, pair, *module, config.ScaleOf(path, pair.a->shape[0]), builder));
  }
  return builder.Finish();
}

Result<std::shared_ptr<const LoraAdapter>> ReadPeftAdapter(const std::string& name,
                                                           const std::string& folder,
                                                           const LoraTargets& targets,
                                                           int32_t max_rank) {
  Result<std::shared_ptr<const LoraAdapter>> adapter = Read(name, folder, targets, max_rank);
  if (adapter.ok()) return adapter;
  return std::move(adapter).status().WithContext(
      StrCat("LoRA adapter '", name, "' in '", folder, "'"));
}

}  // namespace nereid::llm
