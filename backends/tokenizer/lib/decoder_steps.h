// The steps of a decoder, sorted by what they act on: single tokens, runs of byte tokens, or the
// joined text. A chain that does not sort so is refused at load. Immutable. [any thread]
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::tokenizer {

// Changes one token's text.
struct TokenStep {
  enum class Kind { kReplace, kStrip, kMetaspace };
  explicit TokenStep(Kind k) : kind(k) {}

  Kind kind;
  std::string from;              // literal, stripped character or Metaspace replacement
  std::string to;                // of kReplace
  uint64_t start = 0, stop = 0;  // of kStrip: how many characters at most
  bool drops_first = false;      // of kMetaspace: marks of the first token vanish

  std::string Apply(std::string_view token, bool first) const;
};

// Changes the joined text as it grows: a TokenStep of kStrip, or of kReplace of one character.
struct TextStepState {
  const TokenStep* step;
  uint64_t start_left = 0;
  std::string held;  // characters to be dropped if the text ends behind them

  // Appends to `out` what `text`, whole characters, settles.
  void Push(std::string_view text, std::string& out);
};

struct DecoderSteps {
  bool spaces_between = false;  // no decoder: tokens are joined by spaces
  bool byte_level = false;      // tokens stand for bytes, which are decoded together
  bool byte_fallback = false;   // <0xHH> tokens are bytes, decoded run by run
  std::vector<TokenStep> before_fallback;
  std::vector<TokenStep> after_fallback;
  std::vector<TokenStep> on_text;

  static Result<DecoderSteps> Make(const nlohmann::json& spec);
  // Whether the first token is treated unlike the others.
  bool first_differs() const;
};

}  // namespace nereid::tokenizer
