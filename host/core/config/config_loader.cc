#include "host/core/config/config_loader.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file_content.h"
#include "host/core/config/config_form.h"
#include "host/core/config/normalize.h"
#include "host/core/config/parse.h"
#include "host/core/config/schema.h"
#include "host/core/config/typed_config.h"
#include "host/core/config/validate.h"

namespace nereid::config {
namespace {

// What one reading produced, before it is judged.
struct Reading {
  Json json;
  std::string file;
  std::string text;               // of the file
  std::optional<KeyIndex> index;  // of the text, where something needs it
};

const KeyIndex& Index(Reading* reading) {
  if (!reading->index) reading->index = IndexKeys(reading->text, Schema::Get().model_config());
  return *reading->index;
}

// Back through the schema: proto order, defaults in, types guaranteed.
Json Canonical(const Json& json, Faults* faults) {
  const auto message = Schema::Get().NewModelConfig();
  JsonToMessage(json, message.get(), faults);
  return MessageToJson(*message);
}

// Faults found behind the parser know only their key: adds the place where it is written.
void AddPlaces(Reading* reading, Faults* faults) {
  for (Fault& fault : *faults) {
    if (!fault.file.empty() || reading->file.empty()) continue;
    fault.file = reading->file;
    if (const KeyPosition* place = Index(reading).Nearest(fault.key)) {
      fault.line = place->line;
      fault.column = place->column;
    }
  }
}

std::string ReadText(const std::string& path, Faults* faults) {
  Result<std::string> text = ReadFile(path);
  if (text.ok()) return std::move(text).value();
  faults->push_back({"", 0, 0, "", text.status().message()});
  return {};
}

Reading Read(const ModelFolder& folder, Faults* faults) {
  Reading reading;
  if (folder.config_override.has_value()) {
    reading.json = ParseJson(*folder.config_override, faults);
    return reading;
  }
  reading.file = ConfigPath(folder);
  if (reading.file.empty()) {
    reading.json = MessageToJson(*Schema::Get().NewModelConfig());
    return reading;
  }
  reading.text = ReadText(reading.file, faults);
  if (!faults->empty()) return reading;
  // Where keys stand is of interest only where something is wrong with one.
  Faults any;
  const bool has_placeholder = reading.text.find('$') != std::string::npos;
  if (!has_placeholder) reading.json = ParsePbtxt(reading.text, reading.file, {}, &any);
  if (has_placeholder || !any.empty()) {
    reading.json = ParsePbtxt(reading.text, reading.file, Index(&reading), faults);
  }
  return reading;
}

// Of outputs with one name the first counts, as in Triton: the ensemble of TensorRT-LLM's last
// templates has such ones. The others are judged by themselves and taken out.
void TakeOutRepeatedOutputs(Json* config, Faults* faults) {
  const std::vector<size_t> repeated = RepeatedOutputs(*config);
  if (repeated.empty()) return;
  const ModelConfig whole = ToModelConfig(*config);
  Json& outputs = config->at("output");
  for (auto index = repeated.rbegin(); index != repeated.rend(); ++index) outputs.erase(*index);
  for (const size_t index : repeated) ValidateOutput(whole, index, faults);
}

// The first judgement: everything that needs no backend.
ModelConfig Judge(const ModelFolder& folder, Reading* reading, Faults* faults) {
  if (folder.is_renamed) reading->json["name"] = folder.name;
  NormalizeFields(folder, &reading->json);
  TakeOutRepeatedOutputs(&reading->json, faults);
  OrderFields(Schema::Get().model_config(), &reading->json);
  ModelConfig config = ToModelConfig(std::move(reading->json));
  ValidateModel(config, folder.name, faults);
  return config;
}

// The kind of scheduler that is set; null: none.
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

std::string ConfigPath(const ModelFolder& folder) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (folder.path.empty()) return {};
  if (!folder.config_name.empty()) {
    const fs::path custom = fs::path(folder.path) / "configs" / (folder.config_name + ".pbtxt");
    if (fs::exists(custom, ignored)) return custom.string();
  }
  const fs::path usual = fs::path(folder.path) / "config.pbtxt";
  return fs::exists(usual, ignored) ? usual.string() : std::string();
}

Result<ModelConfig> ReadModelConfig(const ModelFolder& folder) {
  Faults faults;
  Reading reading = Read(folder, &faults);
  if (!faults.empty()) {
    if (!folder.config_override.has_value()) return ToStatus(faults);
    return ToStatus(faults).WithContext("Invalid config override");
  }
  ModelConfig config = Judge(folder, &reading, &faults);
  if (folder.is_whole) ValidateTensors(config, &faults);
  AddPlaces(&reading, &faults);
  if (!faults.empty()) return ToStatus(faults);
  return config;
}

Faults CheckModelConfig(const ModelFolder& folder) {
  Faults faults;
  Reading reading = Read(folder, &faults);
  if (!faults.empty()) return faults;
  const ModelConfig config = Judge(folder, &reading, &faults);
  ValidateTensors(config, &faults);
  AddPlaces(&reading, &faults);
  return faults;
}

void LocateFaults(const ModelFolder& folder, Faults* faults) {
  Reading reading;
  reading.file = ConfigPath(folder);
  if (reading.file.empty()) return;
  Faults unreadable;
  reading.text = ReadText(reading.file, &unreadable);
  AddPlaces(&reading, faults);
}

Result<ModelConfig> PrepareInstances(const ModelConfig& config, const InstanceDefaults& defaults) {
  Json json = FromModelConfig(config);
  NormalizeInstanceGroups(defaults, &json);
  ModelConfig prepared = config;
  prepared.instance_groups = ToInstanceGroups(json);
  prepared.form = std::make_shared<const ConfigForm>(std::move(json));  // still canonical
  Faults faults;
  ValidateInstanceGroups(prepared, defaults.gpus, &faults);
  if (!faults.empty()) return ToStatus(faults);
  return prepared;
}

Result<ModelConfig> WithInstanceGroups(const ModelConfig& config, const ModelConfig& groups) {
  Json json = FromModelConfig(config);
  json["instance_group"] = FromModelConfig(groups).at("instance_group");
  Faults faults;
  ModelConfig changed = ToModelConfig(Canonical(json, &faults));
  if (!faults.empty()) return ToStatus(faults);
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
  Faults faults;
  const Json update = ParseJson(text, &faults);
  if (!faults.empty()) return ToStatus(faults);
  Json merged = FromModelConfig(current);
  for (const char* key : {"input", "output", "max_batch_size"}) merged[key] = update.at(key);
  NEREID_RETURN_IF_ERROR(MergeScheduler(update, &merged));
  if (update.contains("model_transaction_policy")) {
    merged["model_transaction_policy"] = update.at("model_transaction_policy");
  }
  ModelConfig config = ToModelConfig(Canonical(merged, &faults));
  if (!faults.empty()) return ToStatus(faults);
  return config;
}

Result<ModelConfig> WithStepNamespaces(const ModelConfig& config,
                                       const std::vector<std::string>& spaces) {
  Json json = FromModelConfig(config);
  Json& steps = json["ensemble_scheduling"]["step"];
  for (size_t i = 0; i < spaces.size(); ++i) steps[i]["model_namespace"] = spaces[i];
  Faults faults;
  ModelConfig named = ToModelConfig(Canonical(json, &faults));
  if (!faults.empty()) return ToStatus(faults);
  return named;
}

Result<ModelConfig> FinishConfig(const ModelConfig& config) {
  ModelConfig finished = config;
  // Nothing else is left to fill in.
  if (config.dynamic_batching || config.sequence_batching) {
    Json json = FromModelConfig(config);
    NormalizeBatching(&json);  // in place: the form stays canonical
    finished = ToModelConfig(std::move(json));
  }
  Faults faults;
  ValidateModel(finished, finished.name, &faults);
  ValidateTensors(finished, &faults);
  if (!faults.empty()) return ToStatus(faults);
  finished.form = std::make_shared<const ConfigForm>(JsonText(finished));
  return finished;
}

std::string JsonText(const ModelConfig& config) {
  return config.form == nullptr ? std::string() : config.form->Text();
}

}  // namespace nereid::config
