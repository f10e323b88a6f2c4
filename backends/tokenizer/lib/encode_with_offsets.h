// Encodes one text, or two texts as a pair, into an Encoding with offsets and masks. Slower than
// Tokenizer::Encode, with the same ids. [any thread]
#pragma once

#include <span>
#include <string_view>

#include "backends/tokenizer/lib/load/tokenizer_components.h"
#include "backends/tokenizer/lib/post_process/encoding.h"

namespace nereid::tokenizer {

// `texts` has one element, or two for a pair; each must be valid UTF-8. The result is truncated but
// not padded: padding needs the caller's whole batch. INVALID_ARG if a pattern exceeds its work
// limit, a part of a text has no token, or truncation cannot be applied. UNSUPPORTED if the
// post-processor cannot combine two texts.
Result<Encoding> EncodeWithOffsets(const TokenizerComponents& components,
                                   std::span<const std::string_view> texts,
                                   bool add_special_tokens);

// The error for a text of `num_bytes` that cannot be encoded: either a part of it has no token and
// the model has no unknown token (`lacks_unk_token`), or a pattern exceeded its work limit.
Status EncodeError(size_t num_bytes, bool lacks_unk_token);

}  // namespace nereid::tokenizer
