// Patterns that divide a text into matches and the spans between them. The patterns of well-known
// tokenizers, identified by their exact text, run as hand-written matchers in linear time. All
// others run on PCRE2 with a work limit. Immutable after creation. [any thread]
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::tokenizer {

// Receives the spans of a text from left to right.
class SpanSink {
 public:
  // Returns false to stop. The caller then returns false, too.
  virtual bool Add(std::string_view span, bool is_match) = 0;

 protected:
  ~SpanSink() = default;
};

class Pattern {
 public:
  virtual ~Pattern() = default;
  // Adds spans that cover `text` (valid UTF-8) to `sink`. An empty match gives an empty span.
  // Returns false if the sink stopped or the pattern exceeded its work limit.
  virtual bool ForEachSpan(std::string_view text, SpanSink& sink) const = 0;
};

// The GPT-2 pattern, built into the ByteLevel pre-tokenizer.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The syntax of a pattern: Oniguruma's in tokenizer.json; that of Rust's regex engines, as in
// tiktoken, for rank files and tekken.json.
enum class RegexDialect { kOniguruma, kRust };

// Makes the fastest implementation of `regex`. UNSUPPORTED names a construct that is refused.
Result<std::unique_ptr<const Pattern>> MakeRegexPattern(
    std::string_view regex, RegexDialect dialect = RegexDialect::kOniguruma);
// Returns the hand-written matcher of `regex`, or null if there is none.
std::unique_ptr<const Pattern> MakeKnownPattern(std::string_view regex);
// Makes the PCRE2 implementation, also of patterns with a hand-written matcher: tests compare both.
Result<std::unique_ptr<const Pattern>> MakePcrePattern(
    std::string_view regex, RegexDialect dialect = RegexDialect::kOniguruma);
// Matches every occurrence of `literal`, which must not be empty.
std::unique_ptr<const Pattern> MakeLiteralPattern(std::string_view literal);
// Matches every single numeric character, as the Digits pre-tokenizer defines them.
std::unique_ptr<const Pattern> MakeDigitPattern();

// Patterns of pre-tokenizers without a regular expression. They look at one character and at most
// the one before it.
std::unique_ptr<const Pattern> MakeSpacePattern();        // every White_Space character by itself
std::unique_ptr<const Pattern> MakePunctuationPattern();  // every punctuation character by itself
std::unique_ptr<const Pattern> MakeWordPattern();         // \w+|[^\w\s]+ of Rust's regex crate
std::unique_ptr<const Pattern> MakeScriptPattern();  // runs of one script; spaces join either side

// Returns `regex` rewritten for PCRE2 with the options UTF, UCP and MULTILINE. UNSUPPORTED names a
// construct without an equivalent.
Result<std::string> TranslateToPcre(std::string_view regex, RegexDialect dialect);
// Compiles a result of TranslateToPcre. INVALID_ARG contains PCRE2's message.
Result<std::unique_ptr<const Pattern>> CompilePcre(std::string_view regex);

}  // namespace nereid::tokenizer
