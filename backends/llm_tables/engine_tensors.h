// The tensors of the `tensorrt_llm` model of all releases, and the extensions of this host: names,
// data types, dims, and what becomes of each. This one table serves the completion and the check of
// a configuration, the reading of requests, the texts of refusals, and the page docs/llm_tables.md.
// [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/data_type.h"
#include "nereid/status.h"

namespace nereid::llm {

enum class InputRule : uint8_t {
  kUsed,            // read by the adapter's request_reader.cc
  kNoted,           // tunes a mechanism that this host does not have: named once in the log
  kRefuseNonEmpty,  // a feature that does not exist: refused unless empty
  kRefuseTrue,      // ... refused if true
  kRefuseNonZero,   // ... refused if any element is not zero
  kRefuseSeveral,   // ... refused if a row has more than one element
  kRefuseAboveOne,  // ... refused if any element is greater than one
};

struct EngineInput {
  std::string_view name;
  DataType datatype;
  std::vector<int64_t> dims;
  InputRule rule;
  // A phrase: what the input does, which mechanism it tunes, or which feature it asks for.
  std::string_view about;
  bool is_optional = true;
  bool any_float = false;  // declared with any floating-point type
};

enum class OutputRule : uint8_t {
  kSet,
  kRefuse,  // never set: a request that names it is refused
};

struct EngineOutput {
  const char* name;
  DataType datatype;
  std::vector<int64_t> dims;
  std::string_view about;  // when it is in a response
  OutputRule rule = OutputRule::kSet;
  bool any_float = false;
};

const std::vector<EngineInput>& EngineInputs();
const std::vector<EngineOutput>& EngineOutputs();

// nullptr if there is none.
const EngineInput* FindEngineInput(std::string_view name);
const EngineOutput* FindEngineOutput(std::string_view name);

// " (did you mean 'X'?)" for a name that no tensor has, or an empty text.
std::string SuggestEngineInput(std::string_view name);
std::string SuggestEngineOutput(std::string_view name);

// Whether a configuration may declare a tensor of the type `known` with the type `declared`.
// Releases before 0.7 use UINT32 where later ones use INT32.
bool FitsType(DataType known, bool any_float, DataType declared);

// Returns the error (UNSUPPORTED) for a request that asks for a feature which does not exist.
Status RefusalOf(const EngineInput& input);
// The line for the log about an input of the rule kNoted.
std::string NoteOf(const EngineInput& input);

// "tunes a mechanism that Nereid does not have; the answers stay the same"
extern const char* const kTunesNothing;

}  // namespace nereid::llm
