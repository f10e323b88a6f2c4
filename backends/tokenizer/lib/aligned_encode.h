// The way of a text through a tokenizer's parts when offsets are wanted: slower than Encode, with
// the same ids. [any thread]
#pragma once

#include <string_view>

#include "encoding.h"
#include "tokenizer_parts.h"

namespace nereid::tokenizer {

// `text` is valid UTF-8. INVALID_ARG when a pattern exceeded its work limit, or truncation cannot
// be followed. What is padded is the caller's batch.
Result<Encoding> EncodeWithOffsets(const TokenizerParts& parts, std::string_view text,
                                   bool add_special_tokens);

}  // namespace nereid::tokenizer
