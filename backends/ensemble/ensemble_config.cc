// Reads the JSON form of a model configuration. 64-bit integers may be numbers or strings, because
// hosts differ in this.
#include "backends/ensemble/ensemble_config.h"

#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"

namespace nereid::ensemble {
namespace {

using Json = nlohmann::ordered_json;

// The host writes the text of a configuration that it has checked, with defaults added.
constexpr JsonLimits kOwnText{.max_bytes = SIZE_MAX, .max_depth = 64, .max_values = SIZE_MAX};

const TensorSpec* Find(const std::vector<TensorSpec>& tensors, std::string_view name) {
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

Result<int64_t> ReadInt(const Json& value, const char* field) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return number;
  }
  return InvalidArgError("field '", field, "': expected an integer, got ", ShowJson(value));
}

Result<int64_t> IntField(const Json& object, const char* field, int64_t fallback) {
  const auto it = object.find(field);
  if (it == object.end()) return fallback;
  return ReadInt(*it, field);
}

std::string StringField(const Json& object, const char* field) {
  const auto it = object.find(field);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

bool BoolField(const Json& object, const char* field) {
  const auto it = object.find(field);
  return it != object.end() && it->is_boolean() && it->get<bool>();
}

// The two sides of a tensor's `reshape`: callers of the model see `dims`, the model itself sees the
// shape after the reshape.
enum class ReshapeSide { kCaller, kBehindReshape };

const Json* FindDims(const Json& tensor, ReshapeSide side) {
  if (side == ReshapeSide::kBehindReshape) {
    const auto reshape = tensor.find("reshape");
    if (reshape != tensor.end() && reshape->is_object()) {
      const auto shape = reshape->find("shape");
      return shape == reshape->end() ? nullptr : &*shape;
    }
  }
  const auto dims = tensor.find("dims");
  return dims == tensor.end() ? nullptr : &*dims;
}

Result<std::vector<TensorSpec>> ReadTensors(const Json& config, const char* field,
                                            ReshapeSide side) {
  std::vector<TensorSpec> tensors;
  const auto list = config.find(field);
  if (list == config.end()) return tensors;
  for (const Json& entry : *list) {
    if (!entry.is_object()) {
      return InvalidArgError("field '", field, "': expected objects, got ", ShowJson(entry));
    }
    TensorSpec tensor;
    tensor.name = StringField(entry, "name");
    tensor.data_type = StringField(entry, "data_type");
    tensor.optional = BoolField(entry, "optional");
    if (const Json* const dims = FindDims(entry, side); dims != nullptr) {
      for (const Json& dim : *dims) {
        NEREID_ASSIGN_OR_RETURN(int64_t value, ReadInt(dim, "dims"));
        tensor.dims.push_back(value);
      }
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Result<ModelSpec> ReadModelSpec(const Json& config, ReshapeSide side) {
  ModelSpec model;
  model.name = StringField(config, "name");
  NEREID_ASSIGN_OR_RETURN(model.max_batch_size, IntField(config, "max_batch_size", 0));
  NEREID_ASSIGN_OR_RETURN(model.inputs, ReadTensors(config, "input", side));
  NEREID_ASSIGN_OR_RETURN(model.outputs, ReadTensors(config, "output", side));
  if (const auto policy = config.find("model_transaction_policy"); policy != config.end()) {
    model.decoupled = BoolField(*policy, "decoupled");
  }
  return model;
}

Result<std::vector<std::pair<std::string, std::string>>> ReadMap(const Json& step,
                                                                 const char* field) {
  std::vector<std::pair<std::string, std::string>> map;
  const auto object = step.find(field);
  if (object == step.end()) return map;
  for (const auto& [key, value] : object->items()) {
    if (!value.is_string()) {
      return InvalidArgError("field '", field, "', key '", key, "': expected a string, got ",
                             ShowJson(value));
    }
    map.emplace_back(key, value.get<std::string>());
  }
  return map;
}

Result<StepConfig> ReadStep(const Json& json) {
  StepConfig step;
  step.model_name = StringField(json, "model_name");
  const std::string space = StringField(json, "model_namespace");
  step.target = space.empty() ? step.model_name : StrCat(space, "/", step.model_name);
  NEREID_ASSIGN_OR_RETURN(step.model_version, IntField(json, "model_version", -1));
  NEREID_ASSIGN_OR_RETURN(step.input_map, ReadMap(json, "input_map"));
  NEREID_ASSIGN_OR_RETURN(step.output_map, ReadMap(json, "output_map"));
  return step;
}

}  // namespace

const TensorSpec* ModelSpec::FindInput(std::string_view tensor) const {
  return Find(inputs, tensor);
}
const TensorSpec* ModelSpec::FindOutput(std::string_view tensor) const {
  return Find(outputs, tensor);
}

Result<ModelSpec> ParseModelSpec(std::string_view json) {
  NEREID_ASSIGN_OR_RETURN(Json config, ReadJsonObject<Json>(json, "model configuration", kOwnText));
  return ReadModelSpec(config, ReshapeSide::kCaller);
}

Result<EnsembleConfig> ParseEnsembleConfig(std::string_view json) {
  NEREID_ASSIGN_OR_RETURN(Json config, ReadJsonObject<Json>(json, "model configuration", kOwnText));
  EnsembleConfig ensemble;
  NEREID_ASSIGN_OR_RETURN(ensemble.model, ReadModelSpec(config, ReshapeSide::kBehindReshape));
  const auto scheduling = config.find("ensemble_scheduling");
  if (scheduling == config.end() || !scheduling->is_object()) {
    return InvalidArgError("ensemble '", ensemble.model.name,
                           "': field 'ensemble_scheduling' is missing");
  }
  NEREID_ASSIGN_OR_RETURN(int64_t limit, IntField(*scheduling, "max_inflight_requests", 0));
  if (limit < 0) {
    return InvalidArgError("field 'max_inflight_requests': expected 0 or more, got ", limit);
  }
  ensemble.max_inflight_requests = static_cast<uint64_t>(limit);
  if (const auto steps = scheduling->find("step"); steps != scheduling->end()) {
    for (const Json& entry : *steps) {
      NEREID_ASSIGN_OR_RETURN(StepConfig step, ReadStep(entry));
      ensemble.steps.push_back(std::move(step));
    }
  }
  return ensemble;
}

Result<std::string> WithDecoupled(std::string_view json, bool decoupled) {
  NEREID_ASSIGN_OR_RETURN(Json config, ReadJsonObject<Json>(json, "model configuration", kOwnText));
  config["model_transaction_policy"] = {{"decoupled", decoupled}};
  return config.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace nereid::ensemble
