/// \file
/// The values of the parameter `speculative_decoding`. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::llm {

enum class DrafterKind : uint8_t {
  kOff,
  kNgram,
  kSuffix,  ///< "suffix" and "auto"
  kDraftModel,
  kEagle3,
};

struct SpeculationMethod {
  DrafterKind kind = DrafterKind::kOff;
  std::string folder;  ///< of the draft model or head; empty for methods without weights

  bool has_weights() const { return !folder.empty(); }
};

/// What ParseSpeculationMethod takes, for messages.
inline constexpr std::string_view kSpeculationMethods =
    "off, auto, ngram, suffix, draft=FOLDER or eagle3=FOLDER";

/// UNSUPPORTED names a method that the engine does not have, INVALID_ARG anything else.
Result<SpeculationMethod> ParseSpeculationMethod(std::string_view text);

}  // namespace nereid::llm
