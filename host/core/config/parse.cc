#include "host/core/config/parse.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"

namespace nereid::core::config {
namespace {

namespace pb = google::protobuf;

constexpr unsigned char kDescriptorSet[] = {
#include "model_config_schema.inc"
};

// Converts protobuf's parse errors to ConfigErrors with the key.
class ConfigErrorCollector : public pb::io::ErrorCollector {
 public:
  ConfigErrorCollector(const std::string& file, const KeyIndex& index, ConfigErrors* errors)
      : file_(file), index_(index), errors_(errors) {}

  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    // protobuf reports some errors one token too late, but their message names the field.
    constexpr std::string_view kFor = " for field \"";
    const size_t named = message.find(kFor);
    std::string_view name;
    if (named != std::string::npos) {
      name = std::string_view(message).substr(named + kFor.size());
      name = name.substr(0, name.find('"'));
    }
    const KeyPosition* key = index_.Before(line + 1, column + 1, name);
    ConfigError error{file_, line + 1, column + 1, key == nullptr ? "" : key->path, message};
    if (Reword(&error.message) && key != nullptr) {
      error.line = key->line;  // protobuf reports the position after the name
      error.column = key->column;
    }
    errors_->push_back(std::move(error));
  }
  void AddWarning(int, pb::io::ColumnNumber, const std::string&) override {}

 private:
  // Replaces 'Message type "inference.X" has no field named "y".' by a message with a suggestion.
  // Returns false and leaves other messages unchanged.
  static bool Reword(std::string* message) {
    constexpr std::string_view kStart = "Message type \"", kMiddle = "\" has no field named \"";
    const size_t middle = message->find(kMiddle);
    if (message->rfind(kStart, 0) != 0 || middle == std::string::npos) return false;
    const std::string type = message->substr(kStart.size(), middle - kStart.size());
    std::string name = message->substr(middle + kMiddle.size());
    name = name.substr(0, name.find('"'));
    const auto* descriptor =
        ConfigSchema::Get().model_config().file()->pool()->FindMessageTypeByName(type);
    if (descriptor == nullptr) return false;
    *message = UnknownFieldMessage(*descriptor, name);
    return true;
  }

  const std::string& file_;
  const KeyIndex& index_;
  ConfigErrors* const errors_;
};

}  // namespace

const ConfigSchema& ConfigSchema::Get() {
  // Never destroyed, because load threads may still parse while the process exits.
  static const ConfigSchema* const schema = new ConfigSchema;
  return *schema;
}

ConfigSchema::ConfigSchema() : factory_(&pool_) {
  google::protobuf::FileDescriptorSet files;
  // The bytes come from our build, so a failure means a broken build and not invalid input.
  if (!files.ParseFromArray(kDescriptorSet, sizeof(kDescriptorSet))) std::abort();
  for (const auto& file : files.file()) {
    if (pool_.BuildFile(file) == nullptr) std::abort();
  }
  model_config_ = pool_.FindMessageTypeByName("inference.ModelConfig");
  if (model_config_ == nullptr) std::abort();
}

std::unique_ptr<google::protobuf::Message> ConfigSchema::NewModelConfig() const {
  return std::unique_ptr<google::protobuf::Message>(factory_.GetPrototype(model_config_)->New());
}

Json ParsePbtxt(std::string_view text, const std::string& file, const KeyIndex& index,
                ConfigErrors* errors) {
  if (text.size() > kMaxConfigBytes) {
    errors->push_back({file, 0, 0, "",
                       StrCat("expected at most ", kMaxConfigBytes, " bytes, got ", text.size())});
    return {};
  }
  for (const Placeholder& placeholder : index.placeholders) {
    errors->push_back({file, placeholder.position.line, placeholder.position.column,
                       placeholder.position.path,
                       StrCat("placeholder '", placeholder.name, "' was not filled in")});
  }
  if (!index.placeholders.empty()) return {};

  ConfigErrorCollector collector(file, index, errors);
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&collector);
  parser.SetRecursionLimit(32);
  const auto message = ConfigSchema::Get().NewModelConfig();
  const size_t num_errors = errors->size();
  pb::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&stream, message.get())) {
    if (errors->size() == num_errors) errors->push_back({file, 0, 0, "", "cannot be parsed"});
    return {};
  }
  bool has_unnamed_enum = false;
  Json json = MessageToJson(*message, &has_unnamed_enum);
  if (has_unnamed_enum) AddUnnamedEnums(*message, errors);
  for (size_t i = num_errors; i < errors->size(); ++i) {
    ConfigError& error = (*errors)[i];
    error.file = file;
    if (const KeyPosition* place = index.Nearest(error.key)) {
      error.line = place->line;
      error.column = place->column;
    }
  }
  return json;
}

Json ParseJson(std::string_view text, ConfigErrors* errors) {
  const Result<Json> json = ReadJson<Json>(text, "", {.max_bytes = kMaxConfigBytes});
  if (!json.ok()) {
    errors->push_back({"", 0, 0, "", json.status().message()});
    return {};
  }
  const auto message = ConfigSchema::Get().NewModelConfig();
  JsonToMessage(*json, message.get(), errors);
  return MessageToJson(*message);
}

}  // namespace nereid::core::config
