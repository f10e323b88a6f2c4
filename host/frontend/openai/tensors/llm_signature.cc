#include "host/frontend/openai/tensors/llm_signature.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_reader.h"
#include "host/frontend/http/bodies/data_type.h"

namespace nereid::openai {
namespace {

using ModelJson = nlohmann::json;

const ModelJson* ModelMember(const ModelJson& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string TextOf(const ModelJson& object, const char* name) {
  const ModelJson* const member = ModelMember(object, name);
  return member != nullptr && member->is_string() ? member->get<std::string>() : std::string();
}

LlmInput ReadInput(const ModelJson& json) {
  LlmInput input;
  input.name = TextOf(json, "name");
  input.datatype = http::ParseDataType(TextOf(json, "datatype"));
  const ModelJson* const shape = ModelMember(json, "shape");
  if (shape == nullptr || !shape->is_array()) return input;
  for (const ModelJson& dim : *shape)
    input.shape.push_back(dim.is_number() ? dim.get<int64_t>() : -1);
  return input;
}

void MarkRequiredInputs(const ModelJson& config, LlmSignature& model) {
  const ModelJson* const inputs = ModelMember(config, "input");
  if (inputs == nullptr) return;
  for (const ModelJson& json : *inputs) {
    const std::string name = TextOf(json, "name");
    const ModelJson* const optional = ModelMember(json, "optional");
    const bool is_optional = optional != nullptr && optional->is_boolean() && optional->get<bool>();
    for (LlmInput& input : model.inputs) {
      if (input.name == name) input.is_optional = is_optional;
    }
  }
}

// Reads a map from a step's tensors to the ensemble's, in the opposite direction.
std::map<std::string, std::string, std::less<>> ReadMap(const ModelJson& step, const char* name) {
  std::map<std::string, std::string, std::less<>> map;
  const ModelJson* const member = ModelMember(step, name);
  if (member == nullptr || !member->is_object()) return map;
  for (const auto& [of_step, of_ensemble] : member->items()) {
    if (of_ensemble.is_string()) map.emplace(of_ensemble.get<std::string>(), of_step);
  }
  return map;
}

bool UsesGenerationConfig(const ModelJson& config) {
  const ModelJson* const parameters = ModelMember(config, "parameters");
  const ModelJson* const defaults =
      parameters == nullptr ? nullptr : ModelMember(*parameters, "sampling_defaults");
  return defaults != nullptr && TextOf(*defaults, "string_value") == "generation_config";
}

// The positive integer that a parameter holds; 0 if it holds none.
int64_t IntegerParameter(const ModelJson& config, const char* name) {
  const ModelJson* const parameters = ModelMember(config, "parameters");
  const ModelJson* const parameter =
      parameters == nullptr ? nullptr : ModelMember(*parameters, name);
  if (parameter == nullptr) return 0;
  const std::string text = TextOf(*parameter, "string_value");
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = !text.empty() && error == std::errc() && *end == 0;
  return is_number ? std::max<int64_t>(number, 0) : 0;
}

bool IsDecoupled(const ModelJson& config) {
  const ModelJson* const policy = ModelMember(config, "model_transaction_policy");
  const ModelJson* const value = policy == nullptr ? nullptr : ModelMember(*policy, "decoupled");
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

// Reads default_temperature and its kin. Returns false if the model has none of them; an empty one
// says that it recommends nothing.
bool ReadRecommended(const ModelJson& config, LlmSignature& model) {
  constexpr std::string_view kPrefix = "default_";
  const ModelJson* const parameters = ModelMember(config, "parameters");
  if (parameters == nullptr || !parameters->is_object()) return false;
  bool has_any = false;
  for (const auto& [name, value] : parameters->items()) {
    const std::string text = TextOf(value, "string_value");
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number = !text.empty() && error == std::errc() && *end == 0;
    if (!name.starts_with(kPrefix)) continue;
    has_any = true;
    if (!is_number || !std::isfinite(number)) continue;
    model.recommended.emplace(name.substr(kPrefix.size()), number);
  }
  return has_any;
}

// The names in "a=/x,b=/y".
void ReadAdapters(const ModelJson& config, LlmSignature& model) {
  const ModelJson* const parameters = ModelMember(config, "parameters");
  const ModelJson* const list =
      parameters == nullptr ? nullptr : ModelMember(*parameters, "lora_adapters");
  if (list == nullptr) return;
  const std::string text = TextOf(*list, "string_value");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string name = text.substr(begin, std::min(text.find('=', begin), end) - begin);
    name.erase(0, name.find_first_not_of(" \t\r\n"));
    if (!name.empty()) model.adapters.push_back(std::move(name));
    begin = end + 1;
  }
}

void ReadStep(const ModelJson& json, const ConfigOf& config_of, LlmSignature& model) {
  LlmStep step{TextOf(json, "model_name"), ReadMap(json, "input_map"), ReadMap(json, "output_map")};
  if (step.outputs.contains("text_output")) model.postprocessing = step;
  if (step.inputs.contains("text_input") || step.inputs.contains("messages")) {
    model.preprocessing = step;
  }
  if (step.inputs.contains("lora_name")) model.engine = step.model;
  const Result<std::string> text = config_of(step.model);
  if (!text.ok()) return;
  const Result<ModelJson> config = ReadJsonObject<ModelJson>(*text, "configuration");
  if (config.ok() && UsesGenerationConfig(*config)) model.has_sampling_defaults = true;
  if (config.ok() && IsDecoupled(*config)) model.is_decoupled = true;
  if (config.ok()) ReadAdapters(*config, model);
  const int64_t limit = config.ok() ? IntegerParameter(*config, "max_seq_len") : 0;
  if (limit > 0 && model.max_model_len > 0) {
    model.max_model_len = std::min(model.max_model_len, limit);
  }
}

}  // namespace

const LlmInput* LlmSignature::FindInput(std::string_view input) const {
  const auto found = std::find_if(inputs.begin(), inputs.end(),
                                  [&](const LlmInput& each) { return each.name == input; });
  return found == inputs.end() ? nullptr : &*found;
}

bool LlmSignature::HasOutput(std::string_view output) const {
  return std::find(outputs.begin(), outputs.end(), output) != outputs.end();
}

std::optional<double> LlmSignature::Recommended(std::string_view input) const {
  const auto found = recommended.find(input);
  return found == recommended.end() ? std::nullopt : std::optional(found->second);
}

Result<LlmSignature> MakeLlmSignature(std::string_view metadata, const ConfigOf& config_of) {
  NEREID_ASSIGN_OR_RETURN(const ModelJson json, ReadJsonObject<ModelJson>(metadata, "metadata"));
  LlmSignature model;
  model.name = model.model = TextOf(json, "name");
  if (const ModelJson* const inputs = ModelMember(json, "inputs")) {
    for (const ModelJson& input : *inputs) model.inputs.push_back(ReadInput(input));
  }
  if (const ModelJson* const outputs = ModelMember(json, "outputs")) {
    for (const ModelJson& output : *outputs) model.outputs.push_back(TextOf(output, "name"));
  }
  if (!model.is_language_model()) return model;  // its configuration is of no interest
  NEREID_ASSIGN_OR_RETURN(const std::string text, config_of(model.name));
  NEREID_ASSIGN_OR_RETURN(const ModelJson config, ReadJsonObject<ModelJson>(text, "configuration"));
  MarkRequiredInputs(config, model);
  ReadAdapters(config, model);
  model.has_sampling_defaults = UsesGenerationConfig(config);
  model.is_decoupled = IsDecoupled(config);
  model.max_model_len = IntegerParameter(config, "max_model_len");
  const ModelJson* const ensemble = ModelMember(config, "ensemble_scheduling");
  const ModelJson* const steps = ensemble == nullptr ? nullptr : ModelMember(*ensemble, "step");
  if (steps != nullptr) {
    for (const ModelJson& step : *steps) ReadStep(step, config_of, model);
  }
  if (ReadRecommended(config, model)) model.has_sampling_defaults = false;
  return model;
}

}  // namespace nereid::openai
