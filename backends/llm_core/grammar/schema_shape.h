// What a JSON schema allows, type by type. A schema is expanded into a list of shapes, and an
// instance is valid if it fits one of them; `allOf` and the keywords beside each other narrow
// shapes, `anyOf` multiplies them. Subschemas of arrays and objects stay references, so that
// recursive schemas have finite shapes. [one thread at a time]
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backends/llm_core/grammar/regex_pool.h"
#include "backends/llm_core/grammar/schema_number.h"
#include "nereid/status.h"

namespace nereid::llm::grammar {

using Json = nlohmann::ordered_json;
// Schemas of one document that apply together. Empty: everything is valid.
using SchemaList = std::vector<const Json*>;

enum class JsonType { kNull, kBoolean, kNumber, kString, kArray, kObject };

struct StringRules {
  std::vector<std::string> patterns, excluded_patterns, formats;
  std::vector<std::string> excluded;  // texts
  uint64_t min_length = 0;
  std::optional<uint64_t> max_length;

  bool IsFree() const {
    return patterns.empty() && excluded_patterns.empty() && formats.empty() && excluded.empty() &&
           min_length == 0 && !max_length;
  }
};

struct ArrayRules {
  struct Group {                     // of one schema
    std::vector<const Json*> first;  // schemas of the first items
    const Json* rest = nullptr;      // of further items, or null
  };
  std::vector<Group> groups;
  uint64_t min_items = 0;
  std::optional<uint64_t> max_items;

  size_t NumFirst() const;
  SchemaList SchemasOf(size_t index) const;
};

struct ObjectRules {
  struct Group {  // of one schema
    std::vector<std::pair<std::string_view, const Json*>> properties;
    std::unordered_map<std::string_view, const Json*> by_name;
    std::vector<std::pair<std::string_view, const Json*>> patterns;
    const Json* additional = nullptr;
  };
  std::vector<std::shared_ptr<const Group>> groups;
  std::vector<std::string> required, forbidden;
  SchemaList names;  // propertyNames
  uint64_t min_properties = 0;
  std::optional<uint64_t> max_properties;
};

struct Shape {
  JsonType type = JsonType::kNull;
  // Only these values, if present. They need not fit the rules below.
  std::optional<std::vector<const Json*>> values;
  NumberRange number;
  StringRules string;
  ArrayRules array;
  ObjectRules object;
  // Why the shape cannot be enforced, if it cannot; it matters only if no other rule excludes it.
  std::string refusal;
};
using Shapes = std::vector<Shape>;

class SchemaDocument {
 public:
  // INVALID_ARG if the text is no JSON, or deep or large beyond the limits.
  static Result<std::unique_ptr<SchemaDocument>> Parse(std::string_view text);

  const Json& root() const { return root_; }
  // The shapes of the values that are valid against all `schemas`. The result lives as long as the
  // document. Errors name the path in the schema and the keyword.
  Result<std::shared_ptr<const Shapes>> Expand(const SchemaList& schemas);
  // The path of a schema of the document, such as #/properties/a.
  std::string PathOf(const Json* schema) const;
  // Counts work. INVALID_ARG past the limit.
  Status Spend(uint64_t steps);

  // Whether a value is valid. Errors as Expand.
  Result<bool> IsValid(const Json& value, const SchemaList& schemas);
  Result<bool> Fits(const Json& value, const Shape& shape);
  // The schemas of the property `name`.
  Result<SchemaList> SchemasOfProperty(const ObjectRules& rules, std::string_view name);
  // The texts of a string shape, without quotes.
  Result<RegexId> StringRegex(RegexPool& pool, const StringRules& rules, bool is_json);
  // Whether it is certain that no value fits both.
  Result<bool> AreDisjoint(const Shape& x, const Shape& y, int depth);

 private:
  friend class ShapeReader;
  SchemaDocument() = default;
  Result<const Json*> Resolve(const std::string& reference);
  Result<bool> MatchesPattern(std::string_view pattern, std::string_view text);
  Result<bool> AreDisjoint(const SchemaList& x, const SchemaList& y, int depth);

  Json root_;
  bool reference_hides_siblings_ = false;  // drafts up to 7
  bool has_inner_ids_ = false;
  std::unordered_map<std::string, const Json*> anchors_;
  std::map<SchemaList, std::shared_ptr<const Shapes>> expanded_;
  std::unique_ptr<RegexPool> pool_;  // for questions about values; spells plain UTF-8
  std::map<std::string, RegexId, std::less<>> patterns_;
  uint64_t num_steps_ = 0;
  int expand_depth_ = 0;  // of Expand inside of Expand, which oneOf causes
};

// Whether two values are equal: numbers by value, objects in any order.
bool JsonEqual(const Json& x, const Json& y);
JsonType TypeOf(const Json& value);

}  // namespace nereid::llm::grammar
