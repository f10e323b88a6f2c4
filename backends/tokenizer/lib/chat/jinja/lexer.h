// Splits a template into tokens, with the settings of chat templates: a block removes the newline
// after it and the spaces before it on its line (trim_blocks, lstrip_blocks), and the newline at
// the end of the template is dropped. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::tokenizer::jinja {

enum class TokenKind {
  kData,        // text outside of tags
  kBlockBegin,  // {%
  kBlockEnd,
  kVariableBegin,  // {{
  kVariableEnd,
  kName,
  kText,  // a string literal, unescaped
  kInteger,
  kFloat,
  kOperator,
  kEnd,  // of the template; always the last token
};

struct Token {
  TokenKind kind;
  std::string text;  // data, name, literal or operator
  int line;
  int64_t integer = 0;
  double number = 0;

  bool IsName(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool IsOperator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
};

// INVALID_ARG names the line of what is malformed.
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace nereid::tokenizer::jinja
