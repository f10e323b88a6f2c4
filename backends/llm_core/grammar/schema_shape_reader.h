// ShapeReader, which expands schemas into shapes: see schema_shape.h. It is apart from its methods
// because they fill several files.
#pragma once

#include <algorithm>
#include <set>

#include "backends/llm_core/grammar/schema_shape.h"

namespace nereid::llm::grammar {

// Applies schemas one after the other to a list of shapes.
class ShapeReader {
 public:
  explicit ShapeReader(SchemaDocument& document) : document_(document) {}

  // The shapes of the values that are valid against all `schemas`.
  Result<Shapes> Read(const SchemaList& schemas);

 private:
  friend class SchemaFailures;
  static constexpr int kMaxDepth = 300;       // of references and combined schemas
  static constexpr size_t kMaxShapes = 2000;  // of one list of schemas
  inline static const Json kTrue = true;
  inline static const Json kFalse = false;

  struct State {
    Shapes shapes;
    std::set<const Json*> applied;  // schemas that have narrowed the shapes already
  };

  // Errors of a malformed schema, and of one that cannot be enforced.
  template <typename... Args>
  Status Fault(const Json& schema, const Args&... args) {
    return InvalidArgError(document_.PathOf(&schema), ": ", args...);
  }
  template <typename... Args>
  Status Refusal(const Json& schema, const Args&... args) {
    return UnsupportedError(document_.PathOf(&schema), ": ", args...);
  }
  Status TooMany(const Json& schema, const char* keyword);
  // Marks shapes of `type` as not enforceable.
  void Refuse(const Json& schema, const char* keyword, const char* why, JsonType type,
              State& state);
  void RefuseShape(const Json& schema, const char* keyword, const char* why, Shape& shape);

  // The value of a keyword, or null without one.
  static const Json* Find(const Json& schema, const char* keyword) {
    const auto it = schema.find(keyword);
    return it == schema.end() ? nullptr : &*it;
  }
  template <typename Change>
  static void ForType(JsonType type, State& state, const Change& change) {
    for (Shape& shape : state.shapes) {
      if (shape.type == type) change(shape);
    }
  }
  // Lowers a maximum to `other`.
  static void Narrow(std::optional<uint64_t>& own, const std::optional<uint64_t>& other) {
    if (other) own = own ? std::min(*own, *other) : *other;
  }
  static void Append(Shapes shapes, Shapes& all) {
    for (Shape& shape : shapes) all.push_back(std::move(shape));
  }

  // Narrows shapes to the values that are valid against `schema`.
  Status Apply(const Json& outer, State& state, int depth);
  // Each of these applies some keywords of `schema`.
  Status ApplyKeywords(const Json& schema, State& state, int depth);
  Status ApplyType(const Json& schema, State& state);
  Status ApplyValues(const Json& schema, State& state);
  // Leaves these values of the shapes.
  Status KeepValues(const std::vector<const Json*>& values, State& state);
  Status ApplyNumber(const Json& schema, State& state);
  Status ApplyString(const Json& schema, State& state);
  Status ApplyArray(const Json& schema, State& state);
  Status ApplyObject(const Json& schema, State& state);
  // A dependency holds for objects without the property, or with it and with what it demands.
  Status ApplyDependencies(const Json& schema, State& state, int depth);
  // Applies the keywords of a schema with unevaluatedItems or unevaluatedProperties, but not these:
  // the last of Shape::scopes then says what its own keywords have added to each shape. One of the
  // two functions below follows and takes the scope away.
  Status ApplyInScope(const Json& schema, State& state, int depth);
  // Adds what unevaluatedItems and unevaluatedProperties say of what the other keywords of
  // `schema`, and the schemas that they apply, have not evaluated.
  Status ApplyUnevaluated(const Json& schema, State& state);
  // Narrows to the values in which what is not evaluated fails `keyword`, one of the two.
  Status FailUnevaluated(const Json& schema, const char* keyword, State& state);
  // What the keywords in the last scope of a shape evaluate: properties and the first items, or
  // null and nothing if they evaluate all; and the schemas one of which a further item must fit.
  std::shared_ptr<ObjectRules::Group> EvaluatedProperties(const Shape& shape) const;
  std::optional<ArrayRules::Group> EvaluatedItems(const Shape& shape) const;
  static SchemaList AllowedItems(const Json& schema, const Shape& shape);
  // Removes the last scope. What it has evaluated does not count outside of a negation.
  void EndScope(Shape& shape);
  // The values that fit `if` and `then`, and those that fail `if` and fit `else`.
  Status ApplyCondition(const Json& schema, State& state, int depth);
  // The values that fit a branch of anyOf, or exactly one of oneOf.
  Status ApplyBranches(const Json& schema, const char* keyword, const Json& branches, State& state,
                       int depth);
  // The part for anyOf where it matters what the valid branches evaluate: each set of branches is
  // an alternative.
  Status ApplySetsOfBranches(const Json& schema, const Json& branches, State& state, int depth);
  // The part for oneOf: removes from `inside`, which has `shape` of the branch `own`, what fits
  // another branch as well. `all`: the shapes of each branch.
  Status CutOutOthers(const Json& schema, const Json& branches, const std::vector<Shapes>& all,
                      size_t own, const Shape& shape, State& inside, int depth);

  // A count such as minLength: absent, or a whole number.
  Status ReadCount(const Json& schema, const char* keyword, std::optional<uint64_t>& count);
  Status ReadRange(const Json& schema, const char* min_keyword, const char* max_keyword,
                   std::optional<uint64_t>& min, std::optional<uint64_t>& max);
  // The schema that a reference of `schema` names, or null without one.
  Result<const Json*> Target(const Json& schema, const char* keyword);

  // Narrows to the values that are not valid against `negated`: for each of its keywords, those
  // that fail it.
  Status ApplyNot(const Json& schema, const Json& outer, State& state, int depth);
  // Keeps the values of other types than those of `schema`.
  Status ApplyOtherTypes(const Json& schema, State& state);
  // Removes one value.
  Status Exclude(const Json& value, State& state);
  // Arrays and objects that differ from `value` have another size, or another item or property.
  Status ExcludeStructure(const Json& value, const Shape& shape, Shapes& all);
  // Requires a property that is valid against `schema`.
  static void RequireProperty(std::string_view name, const Json* schema, Shape& shape);
  // Whether a shape holds no value, as far as that is plain.
  static bool IsImpossible(const Shape& shape);

  SchemaDocument& document_;
  std::vector<const Json*> active_;  // schemas that are being applied, the outermost first
  int num_scopes_ = 0;  // of unevaluatedItems and unevaluatedProperties that are being read
  // Of these, the ones whose failure is sought: a branch of anyOf that is not applied must fail
  // there, because what it evaluates would not be unevaluated.
  int num_failing_scopes_ = 0;
  int negations_ = 0;  // of `not` around what is being read
};

}  // namespace nereid::llm::grammar
