// One piece of a streamed text, from ids alone: no state is kept between responses. [any thread]
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "backends/tokenizer/lib/tokenizer.h"

namespace nereid::tokenizer {

// The text that `ids` add behind `prior_ids`, the last ids of the stream so far (all of them, or at
// least kMaxHeldIds). Bytes of an unfinished character wait for the next call unless `is_final`.
// The pieces of a stream, put together, are the decode of its ids.
std::string DecodePiece(const Tokenizer& tokenizer, bool skip_special_tokens,
                        std::span<const int32_t> prior_ids, std::span<const int32_t> ids,
                        bool is_final);

}  // namespace nereid::tokenizer
