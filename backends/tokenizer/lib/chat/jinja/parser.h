// Parses a template into its syntax tree. [any thread]
#pragma once

#include <string_view>

#include "backends/tokenizer/lib/chat/jinja/ast.h"
#include "nereid/status.h"

namespace nereid::tokenizer::jinja {

// INVALID_ARG names the line and what was expected there; UNSUPPORTED names a statement that chat
// templates cannot use, such as `include`.
Result<Block> Parse(std::string_view source);

}  // namespace nereid::tokenizer::jinja
