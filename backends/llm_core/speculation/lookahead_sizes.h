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

  /// The draft tokens of a step whose n-grams and columns share none. The newest token is in the
  /// window, but is no draft token.
  int64_t num_drafts() const {
    return (int64_t{window_size} + verification_set_size) * (ngram_size - 1) - 1;
  }
  bool operator==(const LookaheadSizes&) const = default;
};

/// A size, with the name of the model's parameter and of the request's input that set it.
struct NamedLookaheadSize {
  const char* name;
  int32_t LookaheadSizes::*size;
  int32_t least;
};
inline constexpr NamedLookaheadSize kLookaheadSizes[] = {
    {"lookahead_window_size", &LookaheadSizes::window_size, 1},
    {"lookahead_ngram_size", &LookaheadSizes::ngram_size, 2},
    {"lookahead_verification_set_size", &LookaheadSizes::verification_set_size, 0}};

/// INVALID_ARG if a size is out of its range, or the draft tokens of a step exceed kMaxTreeDrafts.
/// `kind`: what sets the sizes, for messages: "parameter", for example.
Status CheckLookaheadSizes(const LookaheadSizes& sizes, std::string_view kind = "size");
/// Parses and checks "W,N,G".
Result<LookaheadSizes> ParseLookaheadSizes(std::string_view text);
/// INVALID_ARG if a size of a request exceeds that of the model; names the request's input.
Status CheckLookaheadWithin(const LookaheadSizes& request, const LookaheadSizes& model);

}  // namespace nereid::llm
