/// \file
/// The method of speculative decoding that a model's parameters name. [any thread]
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "backends/llm_core/speculation/lookahead_sizes.h"
#include "nereid/status.h"

namespace nereid::llm {

enum class DrafterKind : uint8_t {
  kOff,
  kNgram,
  kSuffix,  ///< "suffix" and "auto"
  kLookahead,
  kDraftModel,
  kEagle3,
  kMedusa,
};

struct SpeculationMethod {
  DrafterKind kind = DrafterKind::kOff;
  std::string folder;  ///< of the draft model or head; empty for methods without weights
  LookaheadSizes lookahead;

  bool has_weights() const { return !folder.empty(); }
};

/// What ParseSpeculationMethod takes, for messages.
inline constexpr std::string_view kSpeculationMethods =
    "off, auto, ngram, suffix, lookahead, lookahead=WINDOW,NGRAM,VERIFICATION, draft=FOLDER, "
    "eagle3=FOLDER or medusa=FOLDER";

/// INVALID_ARG names the methods, or what the method needs.
Result<SpeculationMethod> ParseSpeculationMethod(std::string_view text);

/// Reads all parameters that choose a method or its sizes: speculative_decoding, decoding_mode
/// lookahead, max_draft_tokens and those of lookahead decoding. `value_of` returns the text of a
/// parameter, or an empty text where it is unset. Errors name the parameter.
Result<SpeculationMethod> FindSpeculationMethod(
    const std::function<std::string(std::string_view)>& value_of);

}  // namespace nereid::llm
