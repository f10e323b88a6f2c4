// The pre_tokenizer component of tokenizer.json: cuts normalised text into the pieces that the
// model encodes one by one. Immutable after creation. [any thread]
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
  // Adds the pieces of `text`, in order; empty ones do not count. `at_start`: the text begins where
  // the whole input begins. False when the sink stopped or a pattern exceeded its work limit.
  virtual bool Split(std::string_view text, bool at_start, PieceSink& out) const = 0;
  // The same for a text whose origin matters. Steps that change the text do so here first.
  bool SplitAligned(AlignedText text, bool at_start, std::vector<AlignedText>& out) const;

 protected:
  virtual void Rewrite(AlignedText& /*text*/, bool /*at_start*/) const {}
  // Split of a text that Rewrite made.
  virtual bool SplitRewritten(std::string_view text, PieceSink& out) const {
    return Split(text, false, out);
  }
};

class PreTokenizer {
 public:
  // From the "pre_tokenizer" member; null leaves the text whole. UNSUPPORTED names the component.
  // `add_prefix_space`: over what a ByteLevel that is the whole pre-tokenizer says.
  static Result<PreTokenizer> Make(const nlohmann::json& spec,
                                   std::optional<bool> add_prefix_space = std::nullopt);

  // What `pattern` matches, as bytes; what lies between matches is left out.
  static PreTokenizer OfMatches(std::unique_ptr<const Pattern> pattern);

  // True when the pieces stand for bytes, each spelt as one character in the vocabulary.
  bool byte_level() const { return byte_level_; }
  // Has the pieces that stand for bytes spelt so, for a model that knows characters only.
  void SpellBytes();

  bool Split(std::string_view text, bool at_start, PieceSink& out) const;
  bool SplitAligned(const AlignedText& text, bool at_start, std::vector<AlignedText>& out) const;

 private:
  class ChainSink;
  Status Add(const nlohmann::json& spec);
  Status AddByteLevel(const nlohmann::json& spec);

  std::vector<std::unique_ptr<const PreTokenizerStep>> steps_;
  bool byte_level_ = false;
  bool rewrites_ = false;  // some step changes the text, so that its start is lost sight of
};

// The Metaspace component, which is a pre-tokenizer and a decoder.
enum class PrependScheme { kAlways, kFirst, kNever };
struct Metaspace {
  std::string replacement;  // one character
  PrependScheme scheme = PrependScheme::kAlways;
  bool split = true;
};
Result<Metaspace> ReadMetaspace(const nlohmann::json& spec, std::string_view where);

}  // namespace nereid::tokenizer
