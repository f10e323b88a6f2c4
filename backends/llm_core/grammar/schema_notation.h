// How the values are written that a schema describes: as JSON, or as a family of models writes the
// arguments of its calls. The default is JSON. [any thread]
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::llm::grammar {

// The members of the outermost object, which has no braces: `begin`, the name, what a kind of
// values begins with, the value, `end`. Members have `separator` between them.
struct MemberNotation {
  // Values of some types.
  struct Kind {
    nlohmann::ordered_json types;  // a schema of these values
    std::string begin;
    bool is_text = false;  // strings stand as they are, without quotes
  };
  std::string begin, end, separator;
  std::vector<Kind> kinds;
  // Members whose values the reader takes for strings, whatever they look like.
  std::set<std::string, std::less<>> texts;
  bool all_are_texts = false;  // it does so for all of them
};

struct SchemaNotation {
  std::string quote;              // around strings without escapes; empty: strings as in JSON
  bool has_bare_names = false;    // names of properties have no quotes
  bool has_identifiers = false;   // names of members consist of letters, digits and underscores
  bool has_python_words = false;  // also True, False and None
  // Numbers beyond 1e199 or of more than 100 digits would not be read as numbers.
  bool has_small_numbers = false;
  std::vector<std::string> excluded;  // texts that no string contains, with or without quotes
  std::optional<MemberNotation> members;

  bool HasJsonStrings() const { return quote.empty(); }
};

// Reads the "notation" of a structural tag, an object whose members have the names of those above;
// "types" of a kind is a list. `marker` returns the bytes of a marker. INVALID_ARG, with `path`: a
// member of another type, too many kinds, texts that nothing ends.
Result<SchemaNotation> ReadSchemaNotation(
    const nlohmann::ordered_json& json, const std::string& path,
    const std::function<std::string(std::string_view)>& marker);

}  // namespace nereid::llm::grammar
