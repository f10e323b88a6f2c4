// Patterns cut a text into spans that match and spans between matches. The patterns of well-known
// tokenizers, recognised by their exact text, run as hand-written matchers in linear time; all
// others run on PCRE2 under a work limit. Immutable after creation. [any thread]
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::tokenizer {

// Receives the spans of a text from left to right.
class PieceSink {
 public:
  // Returns false to stop; the caller then returns false too.
  virtual bool Add(std::string_view piece, bool is_match) = 0;

 protected:
  ~PieceSink() = default;
};

class Pattern {
 public:
  virtual ~Pattern() = default;
  // Adds spans that cover `text` (valid UTF-8) to `sink`; empty matches give empty spans. False
  // when the sink stopped or the pattern exceeded its work limit.
  virtual bool ForEachSpan(std::string_view text, PieceSink& sink) const = 0;
};

// The GPT-2 pattern, built into the ByteLevel pre-tokenizer.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// In which language a pattern is written: tokenizer.json's is Oniguruma's, that of rank files (and
// of tekken.json) is that of Rust's engines, as in tiktoken.
enum class RegexDialect { kOniguruma, kRust };

// UNSUPPORTED names a construct that is refused.
Result<std::unique_ptr<const Pattern>> MakeRegexPattern(
    std::string_view regex, RegexDialect dialect = RegexDialect::kOniguruma);
// The hand-written matcher of `regex`, or null.
std::unique_ptr<const Pattern> MakeKnownPattern(std::string_view regex);
// The general engine, also for patterns that have a matcher of their own (tests compare the two).
Result<std::unique_ptr<const Pattern>> MakePcrePattern(
    std::string_view regex, RegexDialect dialect = RegexDialect::kOniguruma);
// Every occurrence of `literal`, which must not be empty.
std::unique_ptr<const Pattern> MakeLiteralPattern(std::string_view literal);
// Every single numeric character, as the Digits pre-tokenizer counts them.
std::unique_ptr<const Pattern> MakeDigitPattern();

// `regex` rewritten for PCRE2 (UTF, UCP, MULTILINE), or UNSUPPORTED where the dialects differ.
Result<std::string> TranslateToPcre(std::string_view regex, RegexDialect dialect);
// What TranslateToPcre gives. INVALID_ARG in PCRE2's words.
Result<std::unique_ptr<const Pattern>> CompilePcre(std::string_view regex);

}  // namespace nereid::tokenizer
