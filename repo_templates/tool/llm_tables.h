// The tensors and parameters that the configurations of LLM models may declare: names, types and
// dimensions of all generations of the inflight_batcher_llm templates. Those of the engine come
// from backends/llm_tables. [any thread]
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/llm_tables/engine_parameters.h"

namespace nereid::repo {

struct LlmTensor {
  std::string name;
  std::string data_type;   // without TYPE_; "*": any floating-point type
  std::string dims;        // "[2,-1]"
  std::string older_dims;  // in early templates; "" if it never changed
  bool required;           // an input that every request must have
};

// "[2,-1]"
std::string DimsText(const std::vector<int64_t>& dims);

enum class LlmRole { kNone, kPreprocessing, kEngine, kPostprocessing };

std::span<const LlmTensor> LlmInputs(LlmRole role);
std::span<const LlmTensor> LlmOutputs(LlmRole role);

// nullptr if there is no such tensor.
const LlmTensor* FindLlmTensor(std::span<const LlmTensor> tensors, std::string_view name);
std::vector<std::string> NamesOf(std::span<const LlmTensor> tensors);

struct LlmParameter {
  const char* key;
  llm::ParameterKind kind = llm::ParameterKind::kText;
  const char* choices = "";  // for kChoice, separated by spaces
  // The only role that reads it; kNone: the backend reads it in no role, or in both.
  LlmRole role = LlmRole::kNone;
};

// The parameters of the tokenizer's models.
std::span<const LlmParameter> TokenizerParameters();

// The page docs/llm_tables.md: what becomes of each tensor and parameter of the engine.
std::string EngineTablesPage();

}  // namespace nereid::repo
