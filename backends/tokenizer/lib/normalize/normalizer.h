// The normalizer component of tokenizer.json, which rewrites text before pre-tokenization.
// Immutable after creation. [any thread]
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/tokenizer/lib/text/aligned_text.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Appends the normalized `text` to `out`. Returns false if a pattern exceeded its work limit.
  virtual bool Apply(std::string_view text, std::string& out) const = 0;
  // The same, keeping the alignment with the original text.
  virtual bool ApplyAligned(AlignedText& text) const = 0;
};

// What functions that make a step return.
using StepResult = Result<std::unique_ptr<const NormalizerStep>>;

template <typename Step, typename... Args>
StepResult MakeStep(Args&&... args) {
  return std::unique_ptr<const NormalizerStep>(std::make_unique<Step>(std::forward<Args>(args)...));
}

// Makes Lowercase, Strip, StripAccents, Nmt, BertNormalizer and ByteLevel, which look at one
// character at a time. UNSUPPORTED names any other type.
StepResult MakeCharNormalizer(const std::string& type, const nlohmann::json& spec);

class Normalizer {
 public:
  // `spec` is the "normalizer" member; null changes nothing. UNSUPPORTED names the component.
  static Result<Normalizer> Make(const nlohmann::json& spec);

  // The sentencepiece library's normalization without a character map: an optional dummy prefix,
  // and spaces become U+2581. With a map, use Of(MakeSentencePieceStep(...)).
  static Normalizer ForSentencePiece(bool add_dummy_prefix);
  static Normalizer Of(std::unique_ptr<const NormalizerStep> step);

  bool is_identity() const { return steps_.empty(); }

  // Sets `out` to the normalized `text`. Returns false if a pattern exceeded its work limit.
  bool Normalize(std::string_view text, std::string& out) const;
  bool NormalizeAligned(AlignedText& text) const;

 private:
  Status Add(const nlohmann::json& spec);

  std::vector<std::unique_ptr<const NormalizerStep>> steps_;
};

}  // namespace nereid::tokenizer
