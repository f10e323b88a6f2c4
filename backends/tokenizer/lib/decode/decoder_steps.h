// The steps of a decoder, sorted by what they act on: single tokens, runs of byte tokens, or the
// joined text. A chain that does not sort so is refused at load. Immutable. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/pattern/pattern.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

// Changes one token's text.
struct TokenStep {
  enum class Kind {
    kReplace,
    kReplacePattern,
    kStrip,
    kMetaspace,
    kStartMark,
    kWordPiece,
    kSuffix,
    kCtc
  };
  explicit TokenStep(Kind k) : kind(k) {}

  Kind kind;
  // Literal, stripped character, Metaspace replacement, mark of which the first token loses one,
  // prefix of WordPiece, suffix of BPE or pad token of CTC.
  std::string from;
  std::string to;                          // of kReplace*; word delimiter of kCtc
  std::shared_ptr<const Pattern> pattern;  // of kReplacePattern
  uint64_t start = 0, stop = 0;            // of kStrip: how many characters at most
  bool drops_first = false;                // of kMetaspace: marks of the first token vanish
  bool cleanup = false;                    // of kWordPiece and kCtc: no spaces before punctuation

  // `first`, `last`: where among the decoded tokens it stands.
  std::string Apply(std::string_view token, bool first, bool last) const;
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
  bool spaces_between = false;    // no decoder: tokens are joined by spaces
  bool drops_repeats = false;     // CTC: a token that equals the one before is dropped
  bool byte_level = false;        // tokens stand for bytes, which are decoded together
  bool byte_fallback = false;     // <0xHH> tokens are bytes, decoded run by run
  bool start_lasts = false;       // tokens are the first as long as there is no text
  bool bytes_lose_space = false;  // a run of bytes that comes first loses a space
  std::vector<TokenStep> before_fallback;
  std::vector<TokenStep> after_fallback;
  std::vector<TokenStep> on_text;

  static Result<DecoderSteps> Make(const nlohmann::json& spec);
  // What sentencepiece's own decoder does: U+2581 becomes a space, but for one that begins the
  // first token (`drops_mark`), or each token before there is text (`drops_marks`). With
  // `drops_mark` alone a space of bytes goes as well, as in tokenizer.json's form of such models.
  static DecoderSteps ForSentencePiece(bool byte_fallback, bool drops_mark, bool drops_marks);
  // Whether the first token is treated unlike the others.
  bool first_differs() const;
  // Whether the last token is.
  bool last_differs() const;

 private:
  template <typename Test>
  bool AnyTokenStep(Test test) const;
};

}  // namespace nereid::tokenizer
