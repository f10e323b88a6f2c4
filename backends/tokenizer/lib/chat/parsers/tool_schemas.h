/// \file
/// The functions that a client offers to a model, as far as the parsers of answers need them: the
/// names, and the types of the arguments where a model writes these as plain text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "nereid/status.h"

namespace nereid::tokenizer {

/// A set of JSON types. Empty: any.
struct ArgumentTypes {
  enum Type : uint8_t { kString = 1, kNumber = 2, kBoolean = 4, kNull = 8, kStructured = 16 };
  uint8_t bits = 0;

  bool Allows(Type type) const { return bits == 0 || (bits & type) != 0; }
  /// Whether each value is text as it stands.
  bool IsOnlyString() const { return bits == kString; }
};

/// Immutable. [any thread]
class ToolSchemas {
 public:
  /// Reads OpenAI's list of tools; a bare list of functions is accepted, too. Null if `json` is
  /// empty or has no function. INVALID_ARG: not JSON, or not a list.
  static Result<std::shared_ptr<const ToolSchemas>> Parse(std::string_view json);

  bool Has(std::string_view function) const;
  /// The types that the schema of the function allows for its argument; any if it does not say.
  ArgumentTypes TypesOf(std::string_view function, std::string_view argument) const;

 private:
  using Arguments = std::unordered_map<std::string, ArgumentTypes>;
  std::unordered_map<std::string, Arguments> functions_;
};

/// Returns the JSON of a value that the model wrote as plain text: as the types say, else as JSON
/// if the text is JSON, else as a string.
std::string ArgumentJson(std::string_view text, ArgumentTypes types);

}  // namespace nereid::tokenizer
