// The parameters that the LLM models know, of all generations of the templates.
#pragma once

#include <span>
#include <string_view>

#include "repo_templates/tool/llm_tensors.h"

namespace nereid::repo {

struct LlmParameter {
  enum class Kind { kText, kBool, kInt, kFloat, kChoice };

  const char* key;
  Kind kind = Kind::kText;
  const char* choices = "";  // of kChoice, separated by spaces
};

std::span<const LlmParameter> LlmParameters(LlmRole role);

// Whether `value` can be read as `kind`; texts always.
bool IsReadable(const LlmParameter& parameter, std::string_view value);
// "true or false", "an integer", ...
std::string ExpectedValue(const LlmParameter& parameter);

}  // namespace nereid::repo
