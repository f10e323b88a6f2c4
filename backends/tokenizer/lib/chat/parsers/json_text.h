// Lexical helpers for JSON texts that arrive in pieces. None recurses. [any thread]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nereid::tokenizer::parsers {

constexpr bool IsSpace(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

// The number of bytes of white space at the beginning of `text`.
size_t CountSpace(std::string_view text);
std::string_view TrimSpace(std::string_view text);

// Appends `text` as the inside of a JSON string.
void AppendEscaped(std::string_view text, std::string& json);
// `text` as a JSON string with its quotes.
std::string JsonString(std::string_view text);
// The text of a JSON string with its quotes. False if it is none.
bool ReadJsonString(std::string_view json, std::string& text);

// Finds the end of one JSON value by its quotes and brackets alone. The value need not be valid.
class JsonValueScanner {
 public:
  // Returns how many bytes at the beginning of `text` belong to the value.
  size_t Scan(std::string_view text);
  // Whether the last byte of the value was scanned. A number ends before the byte that follows it.
  bool is_done() const { return state_ == State::kDone; }

 private:
  enum class State { kBegin, kStructure, kString, kEscape, kScalar, kDone };
  State state_ = State::kBegin;
  size_t depth_ = 0;  // of open brackets
};

}  // namespace nereid::tokenizer::parsers
