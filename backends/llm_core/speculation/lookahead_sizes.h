/// \file
/// The sizes of lookahead decoding, as TensorRT-LLM names them. [any thread]
#pragma once

#include <cstdint>
#include <string_view>

#include "nereid/status.h"

namespace nereid::llm {

/// See LookaheadDrafter for what they mean.
struct LookaheadSizes {
  int32_t window_size = 4;            ///< lookahead_window_size: columns of the window
  int32_t ngram_size = 3;             ///< lookahead_ngram_size: rows of the window, and 1
  int32_t verification_set_size = 4;  ///< lookahead_verification_set_size: n-grams in a step

  /// The draft tokens of a step, if no two of them are equal. The newest token is in the window,
  /// but is no draft token.
  int64_t num_drafts() const {
    return (int64_t{window_size} + verification_set_size) * (ngram_size - 1) - 1;
  }
  bool operator==(const LookaheadSizes&) const = default;
};

/// INVALID_ARG if a size is out of its range, or the draft tokens of a step exceed kMaxTreeDrafts.
/// `kind`: what the sizes are, for messages: "parameter", for example.
Status CheckLookaheadSizes(const LookaheadSizes& sizes, std::string_view kind = "size");
/// Parses and checks "W,N,G".
Result<LookaheadSizes> ParseLookaheadSizes(std::string_view text);
/// INVALID_ARG if a size of a request, an input, exceeds that of the model.
Status CheckLookaheadWithin(const LookaheadSizes& request, const LookaheadSizes& model);

}  // namespace nereid::llm
