// The tensors of the LLM models, name for name, with the types and dimensions of all generations of
// the inflight_batcher_llm templates: what a configuration may declare. [any thread]
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::repo {

struct LlmTensor {
  const char* name;
  const char* data_type;   // without TYPE_; "*": any floating point
  const char* dims;        // "[2,-1]"
  const char* older_dims;  // of early templates; "" when it never changed
  bool required;           // an input that every request brings
};

enum class LlmRole { kNone, kPreprocessing, kEngine, kPostprocessing };

std::span<const LlmTensor> LlmInputs(LlmRole role);
std::span<const LlmTensor> LlmOutputs(LlmRole role);

// nullptr when there is none of that name.
const LlmTensor* FindLlmTensor(std::span<const LlmTensor> tensors, std::string_view name);
std::vector<std::string> NamesOf(std::span<const LlmTensor> tensors);

}  // namespace nereid::repo
