// The normalizer component of tokenizer.json: text -> text, before it is cut into pieces.
// Immutable after creation. [any thread]
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/text/aligned_text.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Appends the normal form of `text` to `out`. False when a pattern exceeded its work limit.
  virtual bool Apply(std::string_view text, std::string& out) const = 0;
  // The same for a text whose origin matters.
  virtual bool ApplyAligned(AlignedText& text) const = 0;
};

class Normalizer {
 public:
  // From the "normalizer" member; null is the identity. UNSUPPORTED names the component.
  static Result<Normalizer> Make(const nlohmann::json& spec);

  // What sentencepiece does before it segments, without and with a character map: optional dummy
  // prefix, spaces to U+2581.
  static Normalizer ForSentencePiece(bool add_dummy_prefix);
  static Normalizer Of(std::unique_ptr<const NormalizerStep> step);

  bool is_identity() const { return steps_.empty(); }

  // Puts the normal form of `text` into `out`. False when a pattern exceeded its work limit.
  bool Normalize(std::string_view text, std::string& out) const;
  bool NormalizeAligned(AlignedText& text) const;

 private:
  Status Add(const nlohmann::json& spec);

  std::vector<std::unique_ptr<const NormalizerStep>> steps_;
};

}  // namespace nereid::tokenizer
