// Judges members of a generate request that no input of a language model has. Such requests have
// many optional members, and one that nobody reads would change nothing without a word. [any
// thread]
#pragma once

#include <cstddef>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "host/frontend/http/bodies/generate_body.h"
#include "nereid/status.h"

namespace nereid::http {

// A tensor of TensorRT-LLM's repositories that asks for a feature which does not exist here.
struct MissingFeature {
  std::string_view member;
  std::string_view feature;
};

// Those that the language-model engines refuse where a model declares them (docs/llm_tables.md).
std::span<const MissingFeature> MissingFeatures();

// Whether the model has the inputs of a language model, of its engine or of its preprocessing.
bool IsLanguageModel(const ModelSignature& model);

// INVALID_ARG if `name`, which names no input of the language model, is close to one that does, or
// asks for a missing feature. `is_false`: the member's value is false, which asks for none.
Status CheckUnknownMember(std::string_view name, bool is_false, const ModelSignature& model);

// Names in the log the members that CheckUnknownMember lets pass. Clients choose the names, so the
// log remembers a limited number of them and writes a limited part of each.
class UnknownMemberLog {
 public:
  static constexpr size_t kMaxNames = 256;
  static constexpr size_t kMaxNameBytes = 64;

  // Returns the line to log for a member that `generate` does not know. The text is empty if this
  // member of this model was logged before, or if kMaxNames members were.
  std::string LineFor(std::string_view model, std::string_view member);

 private:
  std::mutex mutex_;  // guards the member below
  std::set<std::pair<std::string, std::string>> named_;
};

}  // namespace nereid::http
