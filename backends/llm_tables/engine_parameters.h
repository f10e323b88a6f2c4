// The parameters of the `tensorrt_llm` model's config.pbtxt of all releases, and the extensions of
// this host: kinds of their values, and what becomes of each. This one table serves the load of a
// model, `nereid-repo check`, and the page docs/llm_tables.md. [any thread]
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::llm {

enum class ParameterKind : uint8_t {
  kText,
  kBool,
  kInt,
  kFloat,
  kFraction,   // a number above 0, up to 1
  kRange,      // an integer within bounds
  kSizes,      // integers of 1 or more, separated by commas
  kDeviceIds,  // numbers of GPUs, each once, separated by commas
  kChoice,
};

enum class ParameterRule : uint8_t {
  kUsed,
  kUsedOnGpu,  // has no effect on the CPU, where it is named in the log
  kUsedOnCpu,  // the reverse
  kNoted,      // tunes a mechanism that this host does not have: named once in the log
  kRefused,    // asks for a feature that does not exist: refused unless the value is an idle one
};

struct EngineParameter {
  const char* key;
  ParameterKind kind;
  ParameterRule rule;
  // A phrase: what it does, which mechanism it tunes, or which feature it asks for.
  const char* about;
  // For kChoice the values, separated by spaces. For kRange the lowest value and, if there is one,
  // the highest.
  const char* choices = "";
  // Values that ask for nothing, separated by spaces. They are neither noted nor refused.
  const char* idle = "";
};

std::span<const EngineParameter> EngineParameters();

// nullptr if there is none.
const EngineParameter* FindEngineParameter(std::string_view key);
// " (did you mean 'X'?)" for a key that no parameter has, or an empty text.
std::string SuggestEngineParameter(std::string_view key);

// Whether the text is a value of the kind; `choices` as in EngineParameter.
bool IsValueOf(ParameterKind kind, std::string_view choices, std::string_view value);
// "true or false", "an integer", ...
std::string ExpectedValue(ParameterKind kind, std::string_view choices);
// Whether one of the words of `choices` is the value.
bool IsOneOf(std::string_view value, std::string_view choices);

// Checks a parameter that is set. INVALID_ARG for an unknown key that is close to a known one and
// for a value that is not of the kind, UNSUPPORTED for a refused feature.
Status CheckEngineParameter(std::string_view key, std::string_view value);

// A parameter that does not fit the other ones, and why.
struct ParameterConflict {
  std::string key;
  Status status;
};
// Checks the parameters that need each other. `value_of` returns the text of a parameter, or an
// empty text where it is unset.
std::optional<ParameterConflict> FindParameterConflict(
    const std::function<std::string(std::string_view)>& value_of);

// The line for the log, or an empty text if the parameter needs none.
std::string NoteOnEngineParameter(std::string_view key, std::string_view value, bool is_on_gpu);

}  // namespace nereid::llm
