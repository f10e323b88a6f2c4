#include "host/core/config/config_loader.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "base/file_content.h"
#include "host/core/config/config_document.h"
#include "host/core/config/normalize.h"
#include "host/core/config/parse.h"
#include "host/core/config/typed_config.h"
#include "host/core/config/validate.h"

namespace nereid::core::config {
namespace {

// The result of parsing a configuration, before validation.
struct ParsedConfig {
  Json json;
  std::string file;
  std::string text;               // content of the file
  std::optional<KeyIndex> index;  // index of `text`, created on demand
};

const KeyIndex& Index(ParsedConfig* parsed) {
  if (!parsed->index) parsed->index = IndexKeys(parsed->text, ConfigSchema::Get().model_config());
  return *parsed->index;
}

// Converts to a protobuf message and back. The result has the field order of the schema, all
// defaults, and the right types.
Json Canonical(const Json& json, ConfigErrors* errors) {
  const auto message = ConfigSchema::Get().NewModelConfig();
  JsonToMessage(json, message.get(), errors);
  return MessageToJson(*message);
}

// Errors that validation finds have only a key. Adds the position of that key in the text.
void AddPositions(ParsedConfig* parsed, ConfigErrors* errors) {
  // Each search goes through all keys. A configuration with more errors than this needs no more
  // positions.
  constexpr size_t kMaxLocated = 100;
  for (ConfigError& error : std::span(*errors).first(std::min(errors->size(), kMaxLocated))) {
    if (!error.file.empty() || parsed->file.empty()) continue;
    error.file = parsed->file;
    if (const KeyPosition* position = Index(parsed).Nearest(error.key)) {
      error.line = position->line;
      error.column = position->column;
    }
  }
}

std::string ReadText(const std::string& path, ConfigErrors* errors) {
  Result<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (text.ok()) return std::move(text).value();
  errors->push_back({"", 0, 0, "", text.status().message()});
  return {};
}

ParsedConfig Parse(const ConfigSource& source, ConfigErrors* errors) {
  ParsedConfig parsed;
  if (source.config_override.has_value()) {
    parsed.json = ParseJson(*source.config_override, errors);
    return parsed;
  }
  parsed.file = ConfigPath(source);
  if (parsed.file.empty()) {
    parsed.json = MessageToJson(*ConfigSchema::Get().NewModelConfig());
    return parsed;
  }
  parsed.text = ReadText(parsed.file, errors);
  if (!errors->empty()) return parsed;
  // The positions of keys are needed only to report errors, so the text is parsed without an index
  // first.
  ConfigErrors any;
  const bool has_placeholder = parsed.text.find('$') != std::string::npos;
  if (!has_placeholder) parsed.json = ParsePbtxt(parsed.text, parsed.file, {}, &any);
  if (has_placeholder || !any.empty()) {
    parsed.json = ParsePbtxt(parsed.text, parsed.file, Index(&parsed), errors);
  }
  return parsed;
}

// If several outputs have the same name, the first one applies, as in Triton. The ensembles of
// TensorRT-LLM's latest templates have such outputs. The others are validated separately and
// removed.
void RemoveRepeatedOutputs(Json* config, ConfigErrors* errors) {
  const std::vector<size_t> repeated = RepeatedOutputs(*config);
  if (repeated.empty()) return;
  const ModelConfig whole = ToModelConfig(*config);
  Json& outputs = config->at("output");
  for (auto index = repeated.rbegin(); index != repeated.rend(); ++index) outputs.erase(*index);
  for (const size_t index : repeated) ValidateOutput(whole, index, errors);
}

// The first validation: everything that does not depend on the backend.
ModelConfig Validate(const ConfigSource& source, ParsedConfig* parsed, ConfigErrors* errors) {
  if (source.is_renamed) parsed->json["name"] = source.name;
  NormalizeFields(source, &parsed->json);
  RemoveRepeatedOutputs(&parsed->json, errors);
  OrderFields(ConfigSchema::Get().model_config(), &parsed->json);
  ModelConfig config = ToModelConfig(std::move(parsed->json));
  ValidateModel(config, source.name, errors);
  return config;
}

// The kind of scheduler that is set; null if none is set.
const char* SchedulerOf(const Json& config) {
  for (const char* kind : {"dynamic_batching", "sequence_batching", "ensemble_scheduling"}) {
    if (config.contains(kind)) return kind;
  }
  return nullptr;
}

Status MergeScheduler(const Json& update, Json* current) {
  const char* given = SchedulerOf(update);
  const char* set = SchedulerOf(*current);
  if (given == nullptr) return Status::Ok();
  if (set != nullptr && std::string_view(set) != given) {
    return InvalidArgError("scheduler: expected '", set, "', which the model has, got '", given,
                           "'");
  }
  if (set == nullptr) (*current)[given] = update.at(given);
  return Status::Ok();
}

}  // namespace

std::string ConfigPath(const ConfigSource& source) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (source.path.empty()) return {};
  if (!source.config_name.empty()) {
    const fs::path custom = fs::path(source.path) / "configs" / (source.config_name + ".pbtxt");
    if (fs::exists(custom, ignored)) return custom.string();
  }
  const fs::path usual = fs::path(source.path) / "config.pbtxt";
  return fs::exists(usual, ignored) ? usual.string() : std::string();
}

Result<ModelConfig> ReadModelConfig(const ConfigSource& source) {
  ConfigErrors errors;
  ParsedConfig parsed = Parse(source, &errors);
  if (!errors.empty()) {
    if (!source.config_override.has_value()) return ToStatus(errors);
    return ToStatus(errors).WithContext("Invalid config override");
  }
  ModelConfig config = Validate(source, &parsed, &errors);
  if (source.is_complete) ValidateTensors(config, &errors);
  AddPositions(&parsed, &errors);
  if (!errors.empty()) return ToStatus(errors);
  return config;
}

ConfigErrors CheckModelConfig(const ConfigSource& source) {
  ConfigErrors errors;
  ParsedConfig parsed = Parse(source, &errors);
  if (!errors.empty()) return errors;
  const ModelConfig config = Validate(source, &parsed, &errors);
  ValidateTensors(config, &errors);
  AddPositions(&parsed, &errors);
  return errors;
}

void LocateErrors(const ConfigSource& source, ConfigErrors* errors) {
  ParsedConfig parsed;
  parsed.file = ConfigPath(source);
  if (parsed.file.empty()) return;
  ConfigErrors unreadable;
  parsed.text = ReadText(parsed.file, &unreadable);
  AddPositions(&parsed, errors);
}

Result<ModelConfig> PrepareInstances(const ModelConfig& config, const InstanceDefaults& defaults) {
  Json json = FromModelConfig(config);
  NormalizeInstanceGroups(defaults, &json);
  ModelConfig prepared = config;
  prepared.instance_groups = ToInstanceGroups(json);
  prepared.document = std::make_shared<const ConfigDocument>(std::move(json));  // still canonical
  ConfigErrors errors;
  ValidateInstanceGroups(prepared, defaults.gpus, &errors);
  if (!errors.empty()) return ToStatus(errors);
  return prepared;
}

Result<ModelConfig> WithInstanceGroups(const ModelConfig& config, const ModelConfig& groups) {
  Json json = FromModelConfig(config);
  json["instance_group"] = FromModelConfig(groups).at("instance_group");
  ConfigErrors errors;
  ModelConfig changed = ToModelConfig(Canonical(json, &errors));
  if (!errors.empty()) return ToStatus(errors);
  return changed;
}

ConfigChange ChangeBetween(const ModelConfig& from, const ModelConfig& to) {
  Json before = FromModelConfig(from), after = FromModelConfig(to);
  const bool same_instances =
      before.value("instance_group", Json()) == after.value("instance_group", Json());
  for (Json* json : {&before, &after}) {
    json->erase("instance_group");
    json->erase("version_policy");
  }
  if (before != after) return ConfigChange::kModel;
  return same_instances ? ConfigChange::kNone : ConfigChange::kInstances;
}

Result<ModelConfig> MergeBackendConfig(const ModelConfig& current, std::string_view text) {
  ConfigErrors errors;
  const Json update = ParseJson(text, &errors);
  if (!errors.empty()) return ToStatus(errors);
  Json merged = FromModelConfig(current);
  for (const char* key : {"input", "output", "max_batch_size"}) merged[key] = update.at(key);
  NEREID_RETURN_IF_ERROR(MergeScheduler(update, &merged));
  if (update.contains("model_transaction_policy")) {
    merged["model_transaction_policy"] = update.at("model_transaction_policy");
  }
  ModelConfig config = ToModelConfig(Canonical(merged, &errors));
  if (!errors.empty()) return ToStatus(errors);
  return config;
}

Result<ModelConfig> WithStepNamespaces(const ModelConfig& config,
                                       const std::vector<std::string>& spaces) {
  Json json = FromModelConfig(config);
  Json& steps = json["ensemble_scheduling"]["step"];
  for (size_t i = 0; i < spaces.size(); ++i) steps[i]["model_namespace"] = spaces[i];
  ConfigErrors errors;
  ModelConfig named = ToModelConfig(Canonical(json, &errors));
  if (!errors.empty()) return ToStatus(errors);
  return named;
}

Result<ModelConfig> FinishConfig(const ModelConfig& config) {
  ModelConfig finished = config;
  // Only batching has defaults that depend on fields that the backend completed.
  if (config.dynamic_batching || config.sequence_batching) {
    Json json = FromModelConfig(config);
    NormalizeBatching(&json);  // keeps the order of fields, so the document stays canonical
    finished = ToModelConfig(std::move(json));
  }
  ConfigErrors errors;
  ValidateModel(finished, finished.name, &errors);
  ValidateTensors(finished, &errors);
  if (!errors.empty()) return ToStatus(errors);
  finished.document = std::make_shared<const ConfigDocument>(JsonText(finished));
  return finished;
}

std::string JsonText(const ModelConfig& config) {
  return config.document == nullptr ? std::string() : config.document->Text();
}

}  // namespace nereid::core::config
