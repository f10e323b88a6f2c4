// The pre_tokenizer component of tokenizer.json: divides normalized text into the pre-tokens that
// the model encodes one by one. Immutable after creation. [any thread]
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/pattern/pattern.h"
#include "backends/tokenizer/lib/text/aligned_text.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  // Adds the pre-tokens of `text` to `out`, in order. Empty ones are ignored. `at_start`: `text`
  // begins at the start of the whole input. Returns false if the sink stopped or a pattern exceeded
  // its work limit.
  virtual bool Split(std::string_view text, bool at_start, SpanSink& out) const = 0;
  // The same, keeping the alignment with the original text, which tells whether `text` begins at
  // the start. Steps that rewrite the text call Rewrite first.
  bool SplitAligned(AlignedText text, std::vector<AlignedText>& out) const;

 protected:
  virtual void Rewrite(AlignedText& /*text*/) const {}
  // Splits a text that Rewrite produced.
  virtual bool SplitRewritten(std::string_view text, SpanSink& out) const {
    return Split(text, false, out);
  }
};

class PreTokenizer {
 public:
  // `spec` is the "pre_tokenizer" member; null keeps the text whole. UNSUPPORTED names the
  // component. `add_prefix_space` overrides the setting of a ByteLevel that is the whole
  // pre-tokenizer.
  static Result<PreTokenizer> Make(const nlohmann::json& spec,
                                   std::optional<bool> add_prefix_space = std::nullopt);

  // The pre-tokens are the matches of `pattern`, as bytes. Text between matches is dropped.
  static PreTokenizer FromMatches(std::unique_ptr<const Pattern> pattern);

  // True if pre-tokens are bytes, each of which is one printable character in the vocabulary.
  bool byte_level() const { return byte_level_; }
  // Converts byte pre-tokens to their printable form, for models that only know characters.
  void MakeBytesPrintable();

  // Adds the pre-tokens of `text` to `out`. `at_start`: `text` begins at the start of the whole
  // input. Use SplitAligned instead for a text of which needs_alignment() is true.
  bool Split(std::string_view text, bool at_start, SpanSink& out) const;
  bool SplitAligned(const AlignedText& text, std::vector<AlignedText>& out) const;

  // Whether only the alignment with the original text tells which pre-tokens are at the start of
  // the input, and a step depends on it. `is_normalized`: a normalizer may have rewritten the text.
  bool needs_alignment(bool is_normalized) const {
    return depends_on_start_ && (is_normalized || start_is_rewritten_);
  }

 private:
  class ChainSink;
  Status Add(const nlohmann::json& spec);
  Status AddByteLevel(const nlohmann::json& spec);

  std::vector<std::unique_ptr<const PreTokenizerStep>> steps_;
  bool byte_level_ = false;
  bool rewrites_ = false;            // a step rewrites the text
  bool depends_on_start_ = false;    // a Metaspace with prepend_scheme "first" is a step
  bool start_is_rewritten_ = false;  // and it comes after a step that rewrites the text
};

// The options of Metaspace, which is both a pre-tokenizer and a decoder component.
enum class PrependScheme { kAlways, kFirst, kNever };
struct MetaspaceOptions {
  std::string replacement;  // exactly one character
  PrependScheme scheme = PrependScheme::kAlways;
  bool split = true;
};
Result<MetaspaceOptions> ReadMetaspaceOptions(const nlohmann::json& spec, std::string_view where);

}  // namespace nereid::tokenizer
