#include "host/core/config/parse.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <nlohmann/json.hpp>

#include "host/core/config/schema.h"

namespace nereid::config {
namespace {

namespace pb = google::protobuf;

// Turns protobuf's errors into faults that name the key.
class FaultCollector : public pb::io::ErrorCollector {
 public:
  FaultCollector(const std::string& file, const KeyIndex& index, Faults* faults)
      : file_(file), index_(index), faults_(faults) {}

  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    // Some errors are reported one token late, but name their field.
    constexpr std::string_view kFor = " for field \"";
    const size_t named = message.find(kFor);
    std::string_view name;
    if (named != std::string::npos) {
      name = std::string_view(message).substr(named + kFor.size());
      name = name.substr(0, name.find('"'));
    }
    const KeyPosition* key = index_.Before(line + 1, column + 1, name);
    Fault fault{file_, line + 1, column + 1, key == nullptr ? "" : key->path, message};
    if (Reword(&fault.message) && key != nullptr) {
      fault.line = key->line;  // protobuf points behind the name
      fault.column = key->column;
    }
    faults_->push_back(std::move(fault));
  }
  void AddWarning(int, pb::io::ColumnNumber, const std::string&) override {}

 private:
  // 'Message type "inference.X" has no field named "y".' -> our words, with a suggestion. False:
  // left as it is.
  static bool Reword(std::string* message) {
    constexpr std::string_view kStart = "Message type \"", kMiddle = "\" has no field named \"";
    const size_t middle = message->find(kMiddle);
    if (message->rfind(kStart, 0) != 0 || middle == std::string::npos) return false;
    const std::string type = message->substr(kStart.size(), middle - kStart.size());
    std::string name = message->substr(middle + kMiddle.size());
    name = name.substr(0, name.find('"'));
    const auto* descriptor =
        Schema::Get().model_config().file()->pool()->FindMessageTypeByName(type);
    if (descriptor == nullptr) return false;
    *message = UnknownFieldMessage(*descriptor, name);
    return true;
  }

  const std::string& file_;
  const KeyIndex& index_;
  Faults* const faults_;
};

}  // namespace

Json ParsePbtxt(std::string_view text, const std::string& file, const KeyIndex& index,
                Faults* faults) {
  if (text.size() > kMaxConfigBytes) {
    faults->push_back({file, 0, 0, "",
                       StrCat("expected at most ", kMaxConfigBytes, " bytes, got ", text.size())});
    return {};
  }
  for (const Placeholder& placeholder : index.placeholders) {
    faults->push_back({file, placeholder.where.line, placeholder.where.column,
                       placeholder.where.path,
                       StrCat("placeholder '", placeholder.name, "' was not filled in")});
  }
  if (!index.placeholders.empty()) return {};

  FaultCollector collector(file, index, faults);
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&collector);
  parser.SetRecursionLimit(32);
  const auto message = Schema::Get().NewModelConfig();
  const size_t num_faults = faults->size();
  pb::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&stream, message.get())) {
    if (faults->size() == num_faults) faults->push_back({file, 0, 0, "", "cannot be parsed"});
    return {};
  }
  bool has_unnamed_enum = false;
  Json json = MessageToJson(*message, &has_unnamed_enum);
  if (has_unnamed_enum) AddUnnamedEnums(*message, faults);
  for (size_t i = num_faults; i < faults->size(); ++i) {
    Fault& fault = (*faults)[i];
    fault.file = file;
    if (const KeyPosition* place = index.Nearest(fault.key)) {
      fault.line = place->line;
      fault.column = place->column;
    }
  }
  return json;
}

Json ParseJson(std::string_view text, Faults* faults) {
  if (text.size() > kMaxConfigBytes) {
    faults->push_back(
        {"", 0, 0, "", StrCat("expected at most ", kMaxConfigBytes, " bytes, got ", text.size())});
    return {};
  }
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& e) {
    faults->push_back({"", 0, 0, "", StrCat("not valid JSON at byte ", e.byte)});
    return {};
  }
  const auto message = Schema::Get().NewModelConfig();
  JsonToMessage(json, message.get(), faults);
  return MessageToJson(*message);
}

}  // namespace nereid::config
