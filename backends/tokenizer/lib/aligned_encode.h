// The way of a text, or of two, through a tokenizer's parts when offsets are wanted: slower than
// Encode, with the same ids. [any thread]
#pragma once

#include <span>
#include <string_view>

#include "backends/tokenizer/lib/finish/encoding.h"
#include "backends/tokenizer/lib/load/tokenizer_parts.h"

namespace nereid::tokenizer {

// `texts`: one, or two that belong together, valid UTF-8. INVALID_ARG when a pattern exceeded its
// work limit, or truncation cannot be followed; UNSUPPORTED when the post-processor has no place
// for two texts. What is padded is the caller's batch.
Result<Encoding> EncodeWithOffsets(const TokenizerParts& parts,
                                   std::span<const std::string_view> texts,
                                   bool add_special_tokens);

// Why a text of so many bytes has no ids: a part of it that no token stands for (lacks_unknown), or
// a pattern's work limit.
Status CannotEncode(size_t num_bytes, bool lacks_unknown);

}  // namespace nereid::tokenizer
