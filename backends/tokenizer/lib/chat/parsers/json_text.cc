// See json_text.h.
#include "backends/tokenizer/lib/chat/parsers/json_text.h"

#include <nlohmann/json.hpp>

#include "base/json_reader.h"

namespace nereid::tokenizer::parsers {

size_t CountSpace(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && IsSpace(text[count])) ++count;
  return count;
}

std::string_view TrimSpace(std::string_view text) {
  text.remove_prefix(CountSpace(text));
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

void AppendEscaped(std::string_view text, std::string& json) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    if (byte == '"' || byte == '\\') {
      json += '\\';
      json += byte;
    } else if (code >= 0x20) {
      json += byte;
    } else if (byte == '\n') {
      json += "\\n";
    } else if (byte == '\t') {
      json += "\\t";
    } else if (byte == '\r') {
      json += "\\r";
    } else {
      json += "\\u00";
      json += kHex[code >> 4];
      json += kHex[code & 15];
    }
  }
}

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  json.reserve(text.size() + 2);
  AppendEscaped(text, json);
  json += '"';
  return json;
}

bool ReadJsonString(std::string_view json, std::string& text) {
  auto value = ReadJson<nlohmann::ordered_json>(json, "");
  if (!value.ok() || !value->is_string()) return false;
  text = std::move(value->get_ref<std::string&>());
  return true;
}

size_t JsonValueScanner::Scan(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char byte = text[i];
    switch (state_) {
      case State::kBegin:
        if (byte == '"') {
          state_ = State::kString;
        } else if (byte == '{' || byte == '[') {
          depth_ = 1;
          state_ = State::kStructure;
        } else {
          state_ = State::kScalar;
        }
        break;
      case State::kStructure:
        if (byte == '"') {
          state_ = State::kString;
        } else if (byte == '{' || byte == '[') {
          ++depth_;
        } else if ((byte == '}' || byte == ']') && --depth_ == 0) {
          state_ = State::kDone;
        }
        break;
      case State::kString:
        if (byte == '\\') {
          state_ = State::kEscape;
        } else if (byte == '"') {
          state_ = depth_ == 0 ? State::kDone : State::kStructure;
        }
        break;
      case State::kEscape:
        state_ = State::kString;
        break;
      case State::kScalar:
        if (IsSpace(byte) || std::string_view(",}]").find(byte) != std::string_view::npos) {
          state_ = State::kDone;
          return i;
        }
        break;
      case State::kDone:
        return i;
    }
    if (state_ == State::kDone) return i + 1;
  }
  return text.size();
}

}  // namespace nereid::tokenizer::parsers
