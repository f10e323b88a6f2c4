// What a JSON schema allows, type by type. A schema is expanded into a list of shapes, and an
// instance is valid if it fits one of them; `allOf` and the keywords beside each other narrow
// shapes, `anyOf` multiplies them. Subschemas of arrays and objects stay references, so that
// recursive schemas have finite shapes. [one thread at a time]
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
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
  std::vector<std::string> patterns, excluded_patterns, formats, excluded_formats;
  std::vector<std::string> excluded;  // texts
  uint64_t min_length = 0;
  std::optional<uint64_t> max_length;

  bool IsFree() const {
    return patterns.empty() && excluded_patterns.empty() && formats.empty() &&
           excluded_formats.empty() && excluded.empty() && min_length == 0 && !max_length;
  }
};

struct ArrayRules {
  struct Group {                     // of one schema
    std::vector<const Json*> first;  // schemas of the first items
    const Json* rest = nullptr;      // of further items, or null
    bool evaluates = true;           // for unevaluatedItems
  };
  struct Count {  // of the items from index `from` on that are valid against `schema`
    const Json* schema;
    uint64_t from = 0, min = 0;
    std::optional<uint64_t> max;
    bool evaluates = true;
  };
  std::vector<Group> groups;
  std::vector<Count> counts;
  const Json* unique_schema = nullptr;  // that says that items must differ, or null
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
    bool evaluates = true;  // for unevaluatedProperties
  };
  // At least one property whose name is selected has a value that is valid against `value`, or any
  // value if that is null.
  struct Some {
    std::string_view pattern = {};  // which the name matches
    // Instead of a pattern: the properties of the group have other names, and its patterns do not
    // match; or the name is valid against `name`.
    std::shared_ptr<const Group> others_of = {};
    const Json* name = nullptr;
    const Json* value = nullptr;
  };
  std::vector<std::shared_ptr<const Group>> groups;
  std::vector<Some> some;
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
  // Numbers of groups and counts before each schema that is being read and has unevaluatedItems or
  // unevaluatedProperties.
  struct Sizes {
    size_t properties, items, counts;
  };
  std::vector<Sizes> scopes;
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
  // Whether a property with this name may be the one that is demanded.
  Result<bool> Selects(const ObjectRules::Some& some, std::string_view name);
  // The texts of a string shape, without quotes.
  Result<RegexId> StringRegex(RegexPool& pool, const StringRules& rules, bool is_json);
  // Whether it is certain that no value fits both.
  Result<bool> AreDisjoint(const Shape& x, const Shape& y, int depth);
  // A schema that is valid exactly where `schema` is not. The same one for each call.
  Result<const Json*> Negation(const Json& schema);
  // A schema that is valid where one of `schemas` is. The same one for each call.
  Result<const Json*> AnyOf(const SchemaList& schemas);
  // A schema that is valid where none of `schemas` is. The same one for each call.
  Result<const Json*> NoneOf(const SchemaList& schemas);
  // A schema that is valid for every value but `value`, which the document owns.
  const Json* AnyBut(const Json& value);

 private:
  // A schema with an identifier of its own, and the names inside of it.
  struct Resource {
    std::string uri;
    const Json* root = nullptr;
    std::unordered_map<std::string, const Json*> anchors;
    // The key is the $dynamicAnchor, or "" for a root that has $recursiveAnchor.
    std::map<std::string, const Json*> dynamic_anchors;
  };
  // What the dynamic references lead to that are read inside of the same resources: the anchors of
  // the outermost of them. Schemas are copied for each scope but that of the root, so that a
  // pointer to a schema says which scope it is read in.
  struct Scope {
    std::map<std::string, const Json*> targets;
    std::unordered_map<const Json*, const Json*> copies;  // of the schemas of the text
  };
  friend class ShapeReader;
  friend class SchemaFailures;
  SchemaDocument() = default;
  void FindResources(const Json& schema, Resource* resource);
  Resource* ResourceOf(const Json* schema);
  // The schema that `reference` names inside of `schema`.
  Result<const Json*> Resolve(const Json& schema, const std::string& reference);
  // The same for a $dynamicRef or $recursiveRef, in the scope of `schema`.
  Result<const Json*> ResolveDynamic(const Json& schema, const std::string& reference);
  // The schema in the scope that begins where it is entered.
  Result<const Json*> Enter(const Json& schema);
  size_t ScopeOf(const Json& schema) const;
  const Json* InScope(const Json& original, size_t scope) const;
  // Returns the scope with these targets.
  Result<size_t> ScopeWith(std::map<std::string, const Json*> targets);
  void NoteScopeCopy(const Json& copy, const Json& original, size_t scope);
  // Notes a schema that was made of `own`, in its scope.
  void NoteMade(const Json& made, const Json& own, size_t scope);
  void NoteCopy(const Json& copy, const Json& original, size_t scope);
  // Writes a schema with copies of `schemas` as the branches of anyOf.
  Status CopyBranches(const SchemaList& schemas, Json& made);
  Result<bool> MatchesPattern(std::string_view pattern, std::string_view text);
  Result<bool> FitsArray(const Json& value, const ArrayRules& rules);
  Result<bool> FitsObject(const Json& value, const ObjectRules& rules);
  Result<bool> AreDisjoint(const SchemaList& x, const SchemaList& y, int depth);
  Result<bool> AreDisjointArrays(const ArrayRules& x, const ArrayRules& y, int depth);
  Result<bool> AreDisjointObjects(const ObjectRules& x, const ObjectRules& y, int depth);

  Json root_;
  bool reference_hides_siblings_ = false;  // drafts up to 7
  bool has_old_ids_ = false;               // draft 4
  bool contains_evaluates_ = true;         // since draft 2020-12
  std::deque<Resource> resources_;         // the root's first
  std::unordered_map<std::string, Resource*> resource_by_uri_;
  std::unordered_map<const Json*, Resource*> resource_of_;
  bool has_scopes_ = false;  // some dynamic reference may lead to several schemas
  size_t num_dynamic_anchors_ = 0;
  std::deque<Scope> scopes_;                          // the first one is the root's
  std::unordered_map<const Json*, size_t> scope_of_;  // of copies; others are in the first one
  // Schemas that are not in the text, and the ones in the text that their parts are copies of.
  std::deque<Json> made_;
  std::unordered_map<const Json*, const Json*> exclusions_, originals_;
  std::map<std::pair<const Json*, size_t>, const Json*> negations_;  // by original and scope
  std::set<const Json*> made_negations_;
  std::map<SchemaList, const Json*> alternatives_, exclusions_of_;  // AnyOf, NoneOf
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
