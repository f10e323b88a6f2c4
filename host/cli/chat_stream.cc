#include "host/cli/chat_stream.h"

#include <nlohmann/json.hpp>

#include "base/json_reader.h"

namespace nereid::cli {
namespace {

using Json = nlohmann::json;

std::string TextOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The message of {"error": {"message": ...}} or {"error": "..."}; empty for anything else.
std::string ErrorIn(const Json& answer) {
  const auto error = answer.find("error");
  if (error == answer.end()) return "";
  if (error->is_string()) return error->get<std::string>();
  return error->is_object() ? TextOf(*error, "message") : "";
}

}  // namespace

bool EventReader::Next(std::string& data) {
  while (true) {
    const size_t end = buffer_.find('\n');
    if (end == std::string::npos) return false;
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) {
      if (!has_data_) continue;
      data = std::move(data_);
      data_.clear();
      has_data_ = false;
      return true;
    }
    if (!line.starts_with("data:")) continue;
    if (has_data_) data_ += '\n';
    data_ += line.substr(line.starts_with("data: ") ? 6 : 5);
    has_data_ = true;
  }
}

Result<ChatDelta> ParseChatDelta(const std::string& data) {
  NEREID_ASSIGN_OR_RETURN(const Json chunk, ReadJsonObject<Json>(data, "event"));
  if (const std::string error = ErrorIn(chunk); !error.empty()) return UnavailableError(error);
  ChatDelta result;
  const auto choices = chunk.find("choices");
  if (choices == chunk.end() || !choices->is_array()) {
    return InvalidArgError("event: expected a chunk with 'choices'");
  }
  if (choices->empty() || !choices->front().is_object()) return result;  // usage
  const Json& choice = choices->front();
  result.finish_reason = TextOf(choice, "finish_reason");
  const auto delta = choice.find("delta");
  if (delta == choice.end() || !delta->is_object()) return result;
  result.content = TextOf(*delta, "content");
  result.reasoning = TextOf(*delta, "reasoning_content");
  if (result.reasoning.empty()) result.reasoning = TextOf(*delta, "reasoning");
  return result;
}

std::string ErrorText(const std::string& body) {
  const Result<Json> answer = ReadJsonObject<Json>(body, "answer");
  const std::string error = answer.ok() ? ErrorIn(*answer) : "";
  return error.empty() ? body.substr(0, 300) : error;
}

}  // namespace nereid::cli
