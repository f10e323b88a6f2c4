/// \file
/// A model's configuration as its backend sees it: the JSON from the host with typed accessors for
/// the common fields, and the draft through which a backend completes it. [any thread once created]
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/data_type.h"
#include "nereid/json.h"
#include "nereid/status.h"

namespace nereid {

/// `parameters` of config.pbtxt: strings by key. A value that is empty or an unfilled template
/// placeholder `${...}` counts as unset everywhere.
class ConfigParameters {
 public:
  ConfigParameters() = default;
  explicit ConfigParameters(const Json& parameters) {
    for (const Json::Member& member : parameters.members()) {
      const std::string& value = member.second["string_value"].AsString();
      const bool is_unfilled = value.starts_with("${") && value.ends_with("}");
      if (!value.empty() && !is_unfilled) values_.emplace_back(member.first, value);
    }
  }

  /// The settings of a backend: {"cmdline":{"<key>":"<value>"}}.
  static ConfigParameters OfBackend(const Json& backend_config) {
    ConfigParameters options;
    for (const Json::Member& member : backend_config["cmdline"].members()) {
      options.values_.emplace_back(member.first, member.second.AsString());
    }
    return options;
  }

  const std::vector<std::pair<std::string, std::string>>& all() const { return values_; }
  /// nullptr if unset.
  const std::string* Find(std::string_view key) const {
    for (const auto& [name, value] : values_) {
      if (name == key) return &value;
    }
    return nullptr;
  }
  std::string String(std::string_view key, std::string_view default_value = "") const {
    const std::string* value = Find(key);
    return value != nullptr ? *value : std::string(default_value);
  }
  /// The typed functions return INVALID_ARG, with key and value, if the text is not of the type.
  Result<std::string> RequiredString(std::string_view key) const {
    if (const std::string* value = Find(key)) return *value;
    return InvalidArgError("parameter '", key, "': expected a value, got none");
  }
  Result<int64_t> Int(std::string_view key, int64_t default_value) const {
    return Number<int64_t>(key, default_value, "an integer");
  }
  Result<double> Double(std::string_view key, double default_value) const {
    return Number<double>(key, default_value, "a number");
  }
  Result<bool> Bool(std::string_view key, bool default_value) const {
    const std::string* value = Find(key);
    if (value == nullptr) return default_value;
    for (const char* text : {"true", "True", "TRUE", "1", "t", "y", "yes"}) {
      if (*value == text) return true;
    }
    for (const char* text : {"false", "False", "FALSE", "0", "f", "n", "no"}) {
      if (*value == text) return false;
    }
    return InvalidArgError("parameter '", key, "': expected true or false, got '", *value, "'");
  }

 private:
  template <typename T>
  Result<T> Number(std::string_view key, T default_value, const char* expected) const {
    const std::string* value = Find(key);
    if (value == nullptr) return default_value;
    T number{};
    const char* const end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, number);
    if (error == std::errc() && stop == end) return number;
    return InvalidArgError("parameter '", key, "': expected ", expected, ", got '", *value, "'");
  }

  std::vector<std::pair<std::string, std::string>> values_;
};

/// An input or output of the configuration. `dims` is without the batch dimension.
struct TensorSpec {
  std::string name;
  DataType datatype = DataType::kInvalid;
  std::vector<int64_t> dims;
  bool is_optional = false;
};

class ModelConfig {
 public:
  ModelConfig() = default;
  static Result<ModelConfig> Parse(std::string_view text) {
    ModelConfig config;
    NEREID_ASSIGN_OR_RETURN(config.json_, Json::Parse(text));
    config.parameters_ = ConfigParameters(config.json_["parameters"]);
    config.inputs_ = SpecsOf(config.json_["input"]);
    config.outputs_ = SpecsOf(config.json_["output"]);
    return config;
  }

  /// The whole configuration, for fields that have no accessor here.
  const Json& json() const { return json_; }
  const ConfigParameters& parameters() const { return parameters_; }
  const std::vector<TensorSpec>& inputs() const { return inputs_; }
  const std::vector<TensorSpec>& outputs() const { return outputs_; }
  const std::string& name() const { return json_["name"].AsString(); }
  /// 0: the model does not batch, and shapes have no batch dimension.
  int64_t max_batch_size() const { return json_["max_batch_size"].AsInt(); }
  bool is_decoupled() const { return json_["model_transaction_policy"]["decoupled"].AsBool(); }

 private:
  static std::vector<TensorSpec> SpecsOf(const Json& tensors) {
    std::vector<TensorSpec> specs;
    for (const Json& tensor : tensors.elements()) {
      TensorSpec& spec = specs.emplace_back();
      spec.name = tensor["name"].AsString();
      spec.datatype = DataTypeFromName(tensor["data_type"].AsString());
      spec.is_optional = tensor["optional"].AsBool();
      for (const Json& dim : tensor["dims"].elements()) spec.dims.push_back(dim.AsInt());
    }
    return specs;
  }

  Json json_;
  ConfigParameters parameters_;
  std::vector<TensorSpec> inputs_, outputs_;
};

/// The configuration that Model::AutoComplete receives and may complete. What config.pbtxt sets is
/// kept; what it leaves out is added.
class ConfigDraft {
 public:
  explicit ConfigDraft(Json config) : json_(std::move(config)) {}

  /// A configured tensor keeps its type and dims; INVALID_ARG if they differ from `spec`.
  Status AddInput(const TensorSpec& spec) { return Add("input", spec); }
  Status AddOutput(const TensorSpec& spec) { return Add("output", spec); }
  /// Only if config.pbtxt sets none.
  void SetMaxBatchSize(int64_t max_batch_size) {
    if (json_["max_batch_size"].AsInt() == 0) json_.Set("max_batch_size", max_batch_size);
  }
  /// Only if config.pbtxt chooses no scheduler.
  void SetDynamicBatching() {
    for (const char* scheduler : {"dynamic_batching", "sequence_batching", "ensemble_scheduling"}) {
      if (!json_[scheduler].is_null()) return;
    }
    json_.Set("dynamic_batching", Json::Object());
  }
  void SetDecoupled(bool is_decoupled) {
    json_.Mutable("model_transaction_policy").Set("decoupled", is_decoupled);
  }

  const Json& json() const { return json_; }
  /// For fields that have no function here. The host takes inputs, outputs, max_batch_size, the
  /// scheduler and the transaction policy, and ignores all other fields.
  Json& mutable_json() { return json_; }

 private:
  Status Add(const char* list, const TensorSpec& spec) {
    for (Json& tensor : json_.Mutable(list).mutable_elements()) {
      if (tensor["name"].AsString() == spec.name) return Merge(list, spec, tensor);
    }
    Json tensor = Json::Object();
    tensor.Set("name", spec.name);
    tensor.Set("data_type", ConfigName(spec.datatype));
    tensor.Set("dims", DimsOf(spec));
    if (spec.is_optional) tensor.Set("optional", true);
    json_.Mutable(list).Append(std::move(tensor));
    return {};
  }

  static Status Merge(const char* list, const TensorSpec& spec, Json& tensor) {
    const std::string& datatype = tensor["data_type"].AsString();
    if (datatype.empty() || datatype == "TYPE_INVALID") {
      tensor.Set("data_type", ConfigName(spec.datatype));
    } else if (datatype != ConfigName(spec.datatype)) {
      return InvalidArgError(list, " '", spec.name, "': expected ", ConfigName(spec.datatype),
                             ", config.pbtxt says ", datatype);
    }
    const std::string dims = DimsOf(spec).Dump();
    if (tensor["dims"].elements().empty()) {
      tensor.Set("dims", DimsOf(spec));
    } else if (tensor["dims"].Dump() != dims) {
      return InvalidArgError(list, " '", spec.name, "': expected dims ", dims,
                             ", config.pbtxt says ", tensor["dims"].Dump());
    }
    return {};
  }

  static Json DimsOf(const TensorSpec& spec) {
    Json dims = Json::Array();
    for (const int64_t dim : spec.dims) dims.Append(dim);
    return dims;
  }

  Json json_;
};

}  // namespace nereid
