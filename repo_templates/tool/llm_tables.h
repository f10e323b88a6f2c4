// The tensors and parameters that the configurations of LLM models may declare: names, types and
// dimensions of all generations of the inflight_batcher_llm templates. [any thread]
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::repo {

struct LlmTensor {
  const char* name;
  const char* data_type;   // without TYPE_; "*": any floating-point type
  const char* dims;        // "[2,-1]"
  const char* older_dims;  // in early templates; "" if it never changed
  bool required;           // an input that every request must have
};

enum class LlmRole { kNone, kPreprocessing, kEngine, kPostprocessing };

std::span<const LlmTensor> LlmInputs(LlmRole role);
std::span<const LlmTensor> LlmOutputs(LlmRole role);

// nullptr if there is no such tensor.
const LlmTensor* FindLlmTensor(std::span<const LlmTensor> tensors, std::string_view name);
std::vector<std::string> NamesOf(std::span<const LlmTensor> tensors);

struct LlmParameter {
  enum class Kind { kText, kBool, kInt, kFloat, kChoice };

  const char* key;
  Kind kind = Kind::kText;
  const char* choices = "";  // for kChoice, separated by spaces
};

std::span<const LlmParameter> LlmParameters(LlmRole role);

// Whether `value` is valid for the parameter's kind; any text is valid for kText.
bool IsReadable(const LlmParameter& parameter, std::string_view value);
// "true or false", "an integer", ...
std::string ExpectedValue(const LlmParameter& parameter);

}  // namespace nereid::repo
