// The steps of a decoder, grouped by what they transform: single tokens, runs of byte tokens, or
// the joined text. Chains that cannot be grouped this way are refused at load. Immutable. [any
// thread]
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

// Transforms the text of one token.
struct TokenStep {
  enum class Kind {
    kReplace,
    kReplacePattern,
    kStrip,
    kMetaspace,
    kFirstMark,
    kWordPiece,
    kBpeSuffix,
    kCtc
  };
  explicit TokenStep(Kind k) : kind(k) {}

  Kind kind;
  // Depending on `kind`: the literal or character to replace or strip, the Metaspace replacement,
  // the mark that the first token loses, WordPiece's prefix, the BPE suffix or CTC's pad token.
  std::string from;
  std::string to;                          // of kReplace*; word delimiter of kCtc
  std::shared_ptr<const Pattern> pattern;  // of kReplacePattern
  uint64_t start = 0, stop = 0;            // of kStrip: maximum number of characters
  bool drops_first = false;                // of kMetaspace: the first token's marks are deleted
  bool cleanup = false;  // of kWordPiece and kCtc: deletes spaces before punctuation

  // `first`, `last`: whether it is the first or last of the decoded tokens.
  std::string Apply(std::string_view token, bool first, bool last) const;
};

// Transforms the joined text as it grows. The step is a TokenStep of kind kStrip, or kReplace with
// a single character.
struct TextStepState {
  const TokenStep* step;
  uint64_t num_start_left = 0;
  std::string pending;  // characters that are dropped if the text ends after them

  // Consumes `text`, whole characters only, and appends to `out` the part that is final.
  void Push(std::string_view text, std::string& out);
};

struct DecoderSteps {
  bool joins_with_spaces = false;        // no decoder: tokens are joined with spaces
  bool drops_repeats = false;            // CTC: a token equal to the previous one is dropped
  bool byte_level = false;               // tokens represent bytes, which are decoded jointly
  bool byte_fallback = false;            // <0xHH> tokens represent bytes, decoded run by run
  bool first_until_text = false;         // tokens count as first until there is text
  bool strips_first_byte_space = false;  // an initial run of byte tokens loses one space
  std::vector<TokenStep> before_fallback;
  std::vector<TokenStep> after_fallback;
  std::vector<TokenStep> on_text;

  static Result<DecoderSteps> Make(const nlohmann::json& spec);
  // The behaviour of the sentencepiece library's decoder. U+2581 becomes a space. A U+2581 at the
  // start of the first token is dropped (`drops_first_mark`), or at the start of each token until
  // there is text (`drops_leading_marks`). With `drops_first_mark` alone, an initial space from
  // byte tokens is dropped as well, as in the tokenizer.json form of such models.
  static DecoderSteps ForSentencePiece(bool byte_fallback, bool drops_first_mark,
                                       bool drops_leading_marks);
  // Whether the first token is decoded differently from the others.
  bool first_differs() const;
  // Whether the last token is decoded differently from the others.
  bool last_differs() const;

 private:
  template <typename Test>
  bool AnyTokenStep(Test test) const;
};

}  // namespace nereid::tokenizer
