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

using Json = nlohmann::json;

const Json* Member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string TextOf(const Json& object, const char* name) {
  const Json* const member = Member(object, name);
  return member != nullptr && member->is_string() ? member->get<std::string>() : std::string();
}

LlmInput ReadInput(const Json& json) {
  LlmInput input;
  input.name = TextOf(json, "name");
  input.datatype = http::ParseDataType(TextOf(json, "datatype"));
  const Json* const shape = Member(json, "shape");
  if (shape == nullptr || !shape->is_array()) return input;
  for (const Json& dim : *shape) input.shape.push_back(dim.is_number() ? dim.get<int64_t>() : -1);
  return input;
}

void MarkRequiredInputs(const Json& config, LlmSignature& model) {
  const Json* const inputs = Member(config, "input");
  if (inputs == nullptr) return;
  for (const Json& json : *inputs) {
    const std::string name = TextOf(json, "name");
    const Json* const optional = Member(json, "optional");
    const bool is_optional = optional != nullptr && optional->is_boolean() && optional->get<bool>();
    for (LlmInput& input : model.inputs) {
      if (input.name == name) input.is_optional = is_optional;
    }
  }
}

// Reads a map from a step's tensors to the ensemble's, in the opposite direction.
std::map<std::string, std::string, std::less<>> ReadMap(const Json& step, const char* name) {
  std::map<std::string, std::string, std::less<>> map;
  const Json* const member = Member(step, name);
  if (member == nullptr || !member->is_object()) return map;
  for (const auto& [of_step, of_ensemble] : member->items()) {
    if (of_ensemble.is_string()) map.emplace(of_ensemble.get<std::string>(), of_step);
  }
  return map;
}

bool UsesGenerationConfig(const Json& config) {
  const Json* const parameters = Member(config, "parameters");
  const Json* const defaults =
      parameters == nullptr ? nullptr : Member(*parameters, "sampling_defaults");
  return defaults != nullptr && TextOf(*defaults, "string_value") == "generation_config";
}

// The positive integer that a parameter holds; 0 if it holds none.
int64_t IntegerParameter(const Json& config, const char* name) {
  const Json* const parameters = Member(config, "parameters");
  const Json* const parameter = parameters == nullptr ? nullptr : Member(*parameters, name);
  if (parameter == nullptr) return 0;
  const std::string text = TextOf(*parameter, "string_value");
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = !text.empty() && error == std::errc() && *end == 0;
  return is_number ? std::max<int64_t>(number, 0) : 0;
}

bool IsDecoupled(const Json& config) {
  const Json* const policy = Member(config, "model_transaction_policy");
  const Json* const value = policy == nullptr ? nullptr : Member(*policy, "decoupled");
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

// Reads default_temperature and its kin. Returns false if the model has none of them; an empty one
// says that it recommends nothing.
bool ReadRecommended(const Json& config, LlmSignature& model) {
  constexpr std::string_view kPrefix = "default_";
  const Json* const parameters = Member(config, "parameters");
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
void ReadAdapters(const Json& config, LlmSignature& model) {
  const Json* const parameters = Member(config, "parameters");
  const Json* const list = parameters == nullptr ? nullptr : Member(*parameters, "lora_adapters");
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

void ReadStep(const Json& json, const ConfigOf& config_of, LlmSignature& model) {
  LlmStep step{TextOf(json, "model_name"), ReadMap(json, "input_map"), ReadMap(json, "output_map")};
  if (step.outputs.contains("text_output")) model.postprocessing = step;
  if (step.inputs.contains("text_input") || step.inputs.contains("messages")) {
    model.preprocessing = step;
  }
  if (step.inputs.contains("lora_name")) model.engine = step.model;
  const Result<std::string> text = config_of(step.model);
  if (!text.ok()) return;
  const Result<Json> config = ReadJsonObject<Json>(*text, "configuration");
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
  NEREID_ASSIGN_OR_RETURN(const Json json, ReadJsonObject<Json>(metadata, "metadata"));
  LlmSignature model;
  model.name = model.model = TextOf(json, "name");
  if (const Json* const inputs = Member(json, "inputs")) {
    for (const Json& input : *inputs) model.inputs.push_back(ReadInput(input));
  }
  if (const Json* const outputs = Member(json, "outputs")) {
    for (const Json& output : *outputs) model.outputs.push_back(TextOf(output, "name"));
  }
  if (!model.is_language_model()) return model;  // its configuration is of no interest
  NEREID_ASSIGN_OR_RETURN(const std::string text, config_of(model.name));
  NEREID_ASSIGN_OR_RETURN(const Json config, ReadJsonObject<Json>(text, "configuration"));
  MarkRequiredInputs(config, model);
  ReadAdapters(config, model);
  model.has_sampling_defaults = UsesGenerationConfig(config);
  model.is_decoupled = IsDecoupled(config);
  model.max_model_len = IntegerParameter(config, "max_model_len");
  const Json* const ensemble = Member(config, "ensemble_scheduling");
  const Json* const steps = ensemble == nullptr ? nullptr : Member(*ensemble, "step");
  if (steps != nullptr) {
    for (const Json& step : *steps) ReadStep(step, config_of, model);
  }
  if (ReadRecommended(config, model)) model.has_sampling_defaults = false;
  return model;
}

}  // namespace nereid::openai
