// See schema_shape.h: how the keywords of a schema narrow shapes.
#include "backends/llm_core/grammar/schema_shape.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "backends/llm_core/grammar/schema_format.h"
#include "base/json_reader.h"

namespace nereid::llm::grammar {
namespace {

constexpr int kMaxDepth = 300;  // of references and combined schemas
constexpr int kMaxExpandDepth = 16;
constexpr size_t kMaxShapes = 2000;  // of one list of schemas
constexpr size_t kMaxValues = 1'000'000;

const Json kTrue = true;
const Json kFalse = false;

}  // namespace

size_t ArrayRules::NumFirst() const {
  size_t num = 0;
  for (const Group& group : groups) num = std::max(num, group.first.size());
  return num;
}

SchemaList ArrayRules::SchemasOf(size_t index) const {
  SchemaList schemas;
  for (const Group& group : groups) {
    const Json* each = index < group.first.size() ? group.first[index] : group.rest;
    if (each != nullptr) schemas.push_back(each);
  }
  return schemas;
}

// Applies schemas one after the other to a list of shapes.
class ShapeReader {
 public:
  explicit ShapeReader(SchemaDocument& document) : document_(document) {}

  Result<Shapes> Read(const SchemaList& schemas) {
    State state;
    for (const JsonType type : {JsonType::kNull, JsonType::kBoolean, JsonType::kNumber,
                                JsonType::kString, JsonType::kArray, JsonType::kObject}) {
      state.shapes.emplace_back().type = type;
    }
    for (const Json* schema : schemas) NEREID_RETURN_IF_ERROR(Apply(*schema, state, 0));
    return std::move(state.shapes);
  }

 private:
  struct State {
    Shapes shapes;
    std::set<const Json*> applied;
  };

  template <typename... Args>
  Status Fault(const Json& schema, const Args&... args) {
    return InvalidArgError(document_.PathOf(&schema), ": ", args...);
  }
  template <typename... Args>
  Status Refusal(const Json& schema, const Args&... args) {
    return UnsupportedError(document_.PathOf(&schema), ": ", args...);
  }
  // Marks shapes of `type` as not enforceable.
  void Refuse(const Json& schema, const char* keyword, const char* why, JsonType type,
              State& state) {
    for (Shape& shape : state.shapes) {
      if (shape.type == type && shape.refusal.empty()) {
        shape.refusal = StrCat(document_.PathOf(&schema), ": ", keyword, ": ", why);
      }
    }
  }
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

  Status Apply(const Json& schema, State& state, int depth) {
    NEREID_RETURN_IF_ERROR(document_.Spend(1 + state.shapes.size()));
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) state.shapes.clear();
      return Status::Ok();
    }
    if (!schema.is_object()) {
      return Fault(schema, "a schema must be an object or a boolean, got ", ShowJson(schema));
    }
    if (state.shapes.empty()) return Status::Ok();
    if (std::find(active_.begin(), active_.end(), &schema) != active_.end() || depth > kMaxDepth) {
      return Fault(schema, "$ref: the schema refers to itself without end");
    }
    if (!state.applied.insert(&schema).second) return Status::Ok();
    const bool has_scope = Find(schema, "unevaluatedItems") != nullptr ||
                           Find(schema, "unevaluatedProperties") != nullptr;
    std::set<const Json*> applied;  // outside of the scope
    if (has_scope) {
      applied.swap(state.applied);
      for (Shape& shape : state.shapes) {
        shape.scopes.push_back(
            {shape.object.groups.size(), shape.array.groups.size(), shape.array.counts.size()});
      }
    }
    num_scopes_ += has_scope;
    active_.push_back(&schema);
    Status status = ApplyKeywords(schema, state, depth);
    active_.pop_back();
    num_scopes_ -= has_scope;
    if (has_scope && status.ok()) {
      ApplyUnevaluated(schema, state);
      state.applied.merge(applied);
    }
    return status;
  }

  Status ApplyKeywords(const Json& schema, State& state, int depth) {
    const Json* reference = Find(schema, "$ref");
    if (reference == nullptr || !document_.reference_hides_siblings_) {
      NEREID_RETURN_IF_ERROR(ApplyType(schema, state));
      NEREID_RETURN_IF_ERROR(ApplyValues(schema, state));
      NEREID_RETURN_IF_ERROR(ApplyNumber(schema, state));
      NEREID_RETURN_IF_ERROR(ApplyString(schema, state));
      NEREID_RETURN_IF_ERROR(ApplyArray(schema, state));
      NEREID_RETURN_IF_ERROR(ApplyObject(schema, state));
    }
    for (const char* keyword : {"$ref", "$dynamicRef", "$recursiveRef"}) {
      NEREID_ASSIGN_OR_RETURN(const Json* target, Target(schema, keyword));
      if (target == nullptr) continue;
      NEREID_RETURN_IF_ERROR(Apply(*target, state, depth + 1));
      if (document_.reference_hides_siblings_) return Status::Ok();
    }
    if (const Json* all = Find(schema, "allOf")) {
      if (!all->is_array()) return Fault(schema, "allOf: must be an array");
      for (const Json& each : *all) NEREID_RETURN_IF_ERROR(Apply(each, state, depth + 1));
    }
    if (const Json* negated = Find(schema, "not")) {
      NEREID_RETURN_IF_ERROR(ApplyNot(schema, *negated, state, depth));
    }
    NEREID_RETURN_IF_ERROR(ApplyDependencies(schema, state, depth));
    NEREID_RETURN_IF_ERROR(ApplyCondition(schema, state, depth));
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (const Json* branches = Find(schema, keyword)) {
        NEREID_RETURN_IF_ERROR(ApplyBranches(schema, keyword, *branches, state, depth));
      }
    }
    return Status::Ok();
  }

  Status ApplyType(const Json& schema, State& state) {
    const Json* type = Find(schema, "type");
    if (type == nullptr) return Status::Ok();
    std::set<std::string> names;
    const Json list = type->is_array() ? *type : Json::array({*type});
    for (const Json& each : list) {
      static const std::set<std::string> kNames = {"null",   "boolean", "number", "integer",
                                                   "string", "array",   "object"};
      if (!each.is_string() || kNames.count(each.get<std::string>()) == 0) {
        return Fault(schema, "type: unknown type ", ShowJson(each));
      }
      names.insert(each.get<std::string>());
    }
    const bool only_integers = names.count("number") == 0;
    if (names.count("integer") != 0) names.insert("number");
    std::erase_if(state.shapes, [&](const Shape& shape) {
      static constexpr const char* kNames[] = {"null",   "boolean", "number",
                                               "string", "array",   "object"};
      return names.count(kNames[static_cast<int>(shape.type)]) == 0;
    });
    if (only_integers) {
      ForType(JsonType::kNumber, state, [](Shape& shape) { shape.number.is_integer = true; });
    }
    return Status::Ok();
  }

  Status ApplyValues(const Json& schema, State& state) {
    for (const char* keyword : {"const", "enum"}) {
      const Json* given = Find(schema, keyword);
      if (given == nullptr) continue;
      std::vector<const Json*> values;
      if (keyword[0] == 'c') {
        values.push_back(given);
      } else {
        if (!given->is_array()) return Fault(schema, "enum: must be an array");
        for (const Json& each : *given) values.push_back(&each);
      }
      if (values.size() > kMaxValues) return Fault(schema, "enum: too many values");
      NEREID_RETURN_IF_ERROR(document_.Spend(values.size()));
      for (Shape& shape : state.shapes) {
        std::vector<const Json*> own;
        for (const Json* each : values) {
          if (TypeOf(*each) != shape.type) continue;
          if (shape.values) {
            NEREID_RETURN_IF_ERROR(document_.Spend(shape.values->size()));
            if (std::none_of(shape.values->begin(), shape.values->end(),
                             [&](const Json* other) { return JsonEqual(*each, *other); })) {
              continue;
            }
          }
          own.push_back(each);
        }
        shape.values = std::move(own);
      }
      std::erase_if(state.shapes, [](const Shape& shape) { return shape.values->empty(); });
    }
    return Status::Ok();
  }

  Status ApplyNumber(const Json& schema, State& state) {
    for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
      const Json* given = Find(schema, keyword);
      if (given == nullptr || given->is_boolean()) continue;
      if (!given->is_number()) return Fault(schema, keyword, ": must be a number");
      const std::optional<Decimal> value = Decimal::Of(*given);
      if (!value || (given->is_number_float() && value->integer.size() > 15)) {
        Refuse(schema, keyword, "the bound is too large", JsonType::kNumber, state);
        continue;
      }
      const bool is_min = std::string_view(keyword).ends_with("inimum");
      // In draft 4, exclusiveMinimum is a boolean beside minimum.
      const Json* old = Find(schema, is_min ? "exclusiveMinimum" : "exclusiveMaximum");
      const bool is_exclusive =
          keyword[0] == 'e' || (old != nullptr && old->is_boolean() && old->get<bool>());
      ForType(JsonType::kNumber, state, [&](Shape& shape) {
        (is_min ? shape.number.min : shape.number.max).push_back({*value, is_exclusive});
      });
    }
    const Json* multiple = Find(schema, "multipleOf");
    if (multiple == nullptr) return Status::Ok();
    const std::optional<Decimal> value = Decimal::Of(*multiple);
    if (!value || value->is_negative || value->IsZero()) {
      return Fault(schema, "multipleOf: must be a positive number");
    }
    const std::string digits = value->integer + value->fraction;
    if (digits.size() - digits.find_first_not_of('0') > 9) {
      Refuse(schema, "multipleOf", "only numbers of up to 9 digits can be enforced",
             JsonType::kNumber, state);
      return Status::Ok();
    }
    const NumberRange::Multiple each{static_cast<uint32_t>(std::stoul(digits)),
                                     static_cast<int>(value->fraction.size())};
    ForType(JsonType::kNumber, state,
            [&](Shape& shape) { shape.number.multiples.push_back(each); });
    return Status::Ok();
  }

  // A count such as minLength: absent, or a whole number.
  Status ReadCount(const Json& schema, const char* keyword, std::optional<uint64_t>& count) {
    const Json* given = Find(schema, keyword);
    if (given == nullptr) return Status::Ok();
    const std::optional<Decimal> value = Decimal::Of(*given);
    if (!value || value->is_negative || !value->IsInteger()) {
      return Fault(schema, keyword, ": must be a whole number that is not negative, got ",
                   ShowJson(*given));
    }
    count = value->integer.size() > 9 ? 1'000'000'000 : std::stoull(value->integer);
    return Status::Ok();
  }
  Status ReadRange(const Json& schema, const char* min_keyword, const char* max_keyword,
                   std::optional<uint64_t>& min, std::optional<uint64_t>& max) {
    NEREID_RETURN_IF_ERROR(ReadCount(schema, min_keyword, min));
    NEREID_RETURN_IF_ERROR(ReadCount(schema, max_keyword, max));
    if (max == 1'000'000'000u) max.reset();  // no text is as long
    return Status::Ok();
  }
  static void Narrow(std::optional<uint64_t>& own, const std::optional<uint64_t>& other) {
    if (other) own = own ? std::min(*own, *other) : *other;
  }

  Status ApplyString(const Json& schema, State& state) {
    std::optional<uint64_t> min, max;
    NEREID_RETURN_IF_ERROR(ReadRange(schema, "minLength", "maxLength", min, max));
    const Json* pattern = Find(schema, "pattern");
    if (pattern != nullptr && !pattern->is_string()) {
      return Fault(schema, "pattern: must be a string");
    }
    const Json* format = Find(schema, "format");
    ForType(JsonType::kString, state, [&](Shape& shape) {
      shape.string.min_length = std::max(shape.string.min_length, min.value_or(0));
      Narrow(shape.string.max_length, max);
      if (pattern != nullptr) shape.string.patterns.push_back(pattern->get<std::string>());
      if (format != nullptr && format->is_string() &&
          !PatternOfFormat(format->get<std::string>()).empty()) {
        shape.string.formats.push_back(format->get<std::string>());
      }
    });
    return Status::Ok();
  }

  Status ApplyArray(const Json& schema, State& state) {
    ArrayRules::Group group;
    const Json* items = Find(schema, "items");
    if (const Json* first = Find(schema, "prefixItems")) {
      if (!first->is_array()) return Fault(schema, "prefixItems: must be an array");
      for (const Json& each : *first) group.first.push_back(&each);
    } else if (items != nullptr && items->is_array()) {
      for (const Json& each : *items) group.first.push_back(&each);
      group.rest = Find(schema, "additionalItems");
    }
    if (items != nullptr && !items->is_array()) group.rest = items;
    group.evaluates = negations_ == 0;
    std::optional<uint64_t> min, max;
    NEREID_RETURN_IF_ERROR(ReadRange(schema, "minItems", "maxItems", min, max));
    ForType(JsonType::kArray, state, [&](Shape& shape) {
      if (!group.first.empty() || group.rest != nullptr) shape.array.groups.push_back(group);
      shape.array.min_items = std::max(shape.array.min_items, min.value_or(0));
      Narrow(shape.array.max_items, max);
    });
    const Json* unique = Find(schema, "uniqueItems");
    if (unique != nullptr && unique->is_boolean() && unique->get<bool>()) {
      for (Shape& shape : state.shapes) {
        if (shape.type != JsonType::kArray) continue;
        if (shape.array.max_items.value_or(2) <= 1 || !shape.refusal.empty()) continue;
        shape.refusal = StrCat(document_.PathOf(&schema),
                               ": uniqueItems: items that must differ cannot be enforced");
      }
    }
    const Json* contains = Find(schema, "contains");
    if (contains != nullptr) {
      std::optional<uint64_t> least, most;
      NEREID_RETURN_IF_ERROR(ReadRange(schema, "minContains", "maxContains", least, most));
      ForType(JsonType::kArray, state, [&](Shape& shape) {
        shape.array.counts.push_back({contains, 0, least.value_or(1), most,
                                      negations_ == 0 && document_.contains_evaluates_});
      });
    }
    return Status::Ok();
  }

  Status ApplyObject(const Json& schema, State& state) {
    auto group = std::make_shared<ObjectRules::Group>();
    for (const char* keyword : {"properties", "patternProperties"}) {
      const Json* given = Find(schema, keyword);
      if (given == nullptr) continue;
      if (!given->is_object()) return Fault(schema, keyword, ": must be an object");
      NEREID_RETURN_IF_ERROR(document_.Spend(given->size()));
      auto& list = keyword[1] == 'r' ? group->properties : group->patterns;
      for (auto it = given->begin(); it != given->end(); ++it) list.emplace_back(it.key(), &*it);
    }
    for (const auto& [name, each] : group->properties) group->by_name.emplace(name, each);
    group->additional = Find(schema, "additionalProperties");
    group->evaluates = negations_ == 0;
    std::vector<std::string> required;
    if (const Json* given = Find(schema, "required")) {
      if (given->is_array()) {
        for (const Json& each : *given) {
          if (!each.is_string()) return Fault(schema, "required: must have strings");
          required.push_back(each.get<std::string>());
        }
      } else if (!given->is_boolean()) {  // draft 3 had a boolean, which is ignored since
        return Fault(schema, "required: must be an array");
      }
    }
    std::optional<uint64_t> min, max;
    NEREID_RETURN_IF_ERROR(ReadRange(schema, "minProperties", "maxProperties", min, max));
    const Json* names = Find(schema, "propertyNames");
    const bool has_group =
        !group->properties.empty() || !group->patterns.empty() || group->additional != nullptr;
    ForType(JsonType::kObject, state, [&](Shape& shape) {
      if (has_group) shape.object.groups.push_back(group);
      shape.object.required.insert(shape.object.required.end(), required.begin(), required.end());
      shape.object.min_properties = std::max(shape.object.min_properties, min.value_or(0));
      Narrow(shape.object.max_properties, max);
      if (names != nullptr) shape.object.names.push_back(names);
    });
    return Status::Ok();
  }

  // The schema that a reference of `schema` names, or null without one.
  Result<const Json*> Target(const Json& schema, const char* keyword) {
    const Json* reference = Find(schema, keyword);
    if (reference == nullptr) return nullptr;
    if (!reference->is_string()) return Fault(schema, keyword, ": must be a string");
    const std::string& name = reference->get_ref<const std::string&>();
    if (keyword != std::string_view("$ref")) {
      if (!document_.IsStatic(name)) {
        return Refusal(schema, keyword, ": more than one schema with this name cannot be enforced");
      }
    }
    Result<const Json*> target = document_.Resolve(schema, name);
    if (!target.ok()) return std::move(target).status().WithContext(document_.PathOf(&schema));
    return target;
  }

  // Adds what unevaluatedItems and unevaluatedProperties say of what the other keywords of
  // `schema`, and the schemas that they apply, have not evaluated.
  void ApplyUnevaluated(const Json& schema, State& state) {
    const Json* properties = Find(schema, "unevaluatedProperties");
    const Json* items = Find(schema, "unevaluatedItems");
    for (Shape& shape : state.shapes) {
      const Shape::Sizes from = shape.scopes.back();
      shape.scopes.pop_back();
      const auto is_true = [](const Json& value) {
        return value == true || (value.is_object() && value.empty());
      };
      if (negations_ > 0) {  // what is evaluated inside of a negation does not count
        if ((shape.type == JsonType::kObject && properties && !is_true(*properties)) ||
            (shape.type == JsonType::kArray && items && !is_true(*items))) {
          RefuseShape(schema, "unevaluated", "cannot be enforced inside of a negation", shape);
        }
        continue;
      }
      if (shape.type == JsonType::kObject && properties != nullptr) {
        auto group = std::make_shared<ObjectRules::Group>();
        bool is_whole = false;
        for (size_t i = from.properties; i < shape.object.groups.size(); ++i) {
          const ObjectRules::Group& each = *shape.object.groups[i];
          if (!each.evaluates) continue;
          is_whole |= each.additional != nullptr;
          for (const auto& [name, own] : each.properties)
            group->properties.emplace_back(name, &kTrue);
          for (const auto& [name, own] : each.patterns) group->patterns.emplace_back(name, &kTrue);
        }
        for (const auto& [name, own] : group->properties) group->by_name.emplace(name, own);
        group->additional = properties;
        if (!is_whole) shape.object.groups.push_back(std::move(group));
      }
      if (shape.type == JsonType::kArray && items != nullptr) {
        ArrayRules::Group group;
        bool is_whole = false, has_contains = false;
        for (size_t i = from.items; i < shape.array.groups.size(); ++i) {
          const ArrayRules::Group& each = shape.array.groups[i];
          if (!each.evaluates) continue;
          is_whole |= each.rest != nullptr;
          group.first.resize(std::max(group.first.size(), each.first.size()), &kTrue);
        }
        for (size_t i = from.counts; i < shape.array.counts.size(); ++i) {
          has_contains |= shape.array.counts[i].evaluates;
        }
        group.rest = items;
        if (has_contains && !is_whole && !is_true(*items)) {
          RefuseShape(schema, "unevaluatedItems", "cannot be enforced beside contains", shape);
        }
        if (!is_whole) shape.array.groups.push_back(std::move(group));
      }
    }
  }

  void RefuseShape(const Json& schema, const char* keyword, const char* why, Shape& shape) {
    if (!shape.refusal.empty()) return;
    shape.refusal = StrCat(document_.PathOf(&schema), ": ", keyword, ": ", why);
  }

  Status ApplyCondition(const Json& schema, State& state, int depth) {
    const Json* condition = Find(schema, "if");
    const Json* then = Find(schema, "then");
    const Json* otherwise = Find(schema, "else");
    if (condition == nullptr) return Status::Ok();
    if (then == nullptr && otherwise == nullptr && num_scopes_ == 0) return Status::Ok();
    State without = state;
    NEREID_RETURN_IF_ERROR(Apply(*condition, state, depth + 1));
    if (then != nullptr) NEREID_RETURN_IF_ERROR(Apply(*then, state, depth + 1));
    NEREID_RETURN_IF_ERROR(ApplyNot(schema, *condition, without, depth + 1));
    if (otherwise != nullptr) NEREID_RETURN_IF_ERROR(Apply(*otherwise, without, depth + 1));
    Append(std::move(without.shapes), state.shapes);
    return state.shapes.size() > kMaxShapes ? TooMany(schema, "if") : Status::Ok();
  }

  static void Append(Shapes shapes, Shapes& all) {
    for (Shape& shape : shapes) all.push_back(std::move(shape));
  }

  // Whether a shape holds no value, as far as that is plain.
  static bool IsImpossible(const Shape& shape) {
    if (shape.values && shape.values->empty()) return true;
    if (shape.type == JsonType::kArray) {
      return shape.array.max_items.value_or(UINT64_MAX) < shape.array.min_items;
    }
    if (shape.type != JsonType::kObject) return false;
    const ObjectRules& rules = shape.object;
    if (rules.max_properties.value_or(UINT64_MAX) < rules.min_properties) return true;
    return std::any_of(rules.required.begin(), rules.required.end(), [&](const std::string& name) {
      return std::find(rules.forbidden.begin(), rules.forbidden.end(), name) !=
             rules.forbidden.end();
    });
  }

  // Narrows to the values that are not valid against `negated`: for each of its keywords, those
  // that fail it.
  Status ApplyNot(const Json& schema, const Json& negated, State& state, int depth) {
    NEREID_RETURN_IF_ERROR(document_.Spend(1 + state.shapes.size()));
    if (negated.is_boolean()) {
      if (negated.get<bool>()) state.shapes.clear();
      return Status::Ok();
    }
    if (!negated.is_object()) return Fault(schema, "not: must be a schema");
    if (depth > kMaxDepth) return Fault(schema, "not: nested too deeply");
    if (state.shapes.empty()) return Status::Ok();
    ++negations_;
    Shapes all;
    Status status = CollectFailures(negated, state, depth, all);
    --negations_;
    NEREID_RETURN_IF_ERROR(std::move(status));
    std::erase_if(all, IsImpossible);
    state.shapes = std::move(all);
    return Status::Ok();
  }

  Status CollectFailures(const Json& negated, const State& state, int depth, Shapes& all) {
    const auto either = [&](const auto& narrow) -> Status {
      State inside = state;
      NEREID_RETURN_IF_ERROR(document_.Spend(1 + 4 * inside.shapes.size()));
      NEREID_RETURN_IF_ERROR(narrow(inside));
      Append(std::move(inside.shapes), all);
      return all.size() > kMaxShapes ? TooMany(negated, "not") : Status::Ok();
    };
    const auto fails = [&](const Json& each) {
      return either([&](State& inside) { return ApplyNot(negated, each, inside, depth + 1); });
    };
    // Values of one type, changed.
    const auto of_type = [&](JsonType type, const auto& change) {
      return either([&](State& inside) {
        std::erase_if(inside.shapes, [&](const Shape& shape) { return shape.type != type; });
        for (Shape& shape : inside.shapes) change(shape);
        return Status::Ok();
      });
    };
    const auto refuse = [&](const char* keyword, JsonType type) {
      if (Find(negated, keyword) == nullptr) return Status::Ok();
      return of_type(type, [&](Shape& shape) {
        RefuseShape(negated, keyword, "its negation cannot be enforced", shape);
      });
    };
    for (const char* keyword : {"$ref", "$dynamicRef", "$recursiveRef"}) {
      NEREID_ASSIGN_OR_RETURN(const Json* target, Target(negated, keyword));
      if (target == nullptr) continue;
      NEREID_RETURN_IF_ERROR(fails(*target));
      if (document_.reference_hides_siblings_) return Status::Ok();
    }
    if (Find(negated, "type") != nullptr) {
      NEREID_RETURN_IF_ERROR(
          either([&](State& inside) { return ApplyOtherTypes(negated, inside); }));
    }
    for (const char* keyword : {"const", "enum"}) {
      const Json* given = Find(negated, keyword);
      if (given == nullptr) continue;
      NEREID_RETURN_IF_ERROR(either([&](State& inside) -> Status {
        if (keyword[0] == 'c') return Exclude(*given, inside);
        if (!given->is_array()) return Fault(negated, "enum: must be an array");
        for (const Json& each : *given) NEREID_RETURN_IF_ERROR(Exclude(each, inside));
        return Status::Ok();
      }));
    }
    for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
      const Json* given = Find(negated, keyword);
      if (given == nullptr || given->is_boolean()) continue;
      const std::optional<Decimal> value = Decimal::Of(*given);
      const bool is_min = std::string_view(keyword).ends_with("inimum");
      const Json* old = Find(negated, is_min ? "exclusiveMinimum" : "exclusiveMaximum");
      const bool is_exclusive =
          keyword[0] == 'e' || (old != nullptr && old->is_boolean() && old->get<bool>());
      NEREID_RETURN_IF_ERROR(of_type(JsonType::kNumber, [&](Shape& shape) {
        if (!value || (given->is_number_float() && value->integer.size() > 15)) {
          return RefuseShape(negated, keyword, "the bound is too large", shape);
        }
        (is_min ? shape.number.max : shape.number.min).push_back({*value, !is_exclusive});
      }));
    }
    if (Find(negated, "multipleOf") != nullptr) {
      const Json only = Json::object({{"multipleOf", *Find(negated, "multipleOf")}});
      NEREID_RETURN_IF_ERROR(either([&](State& inside) -> Status {
        std::erase_if(inside.shapes, [](const Shape& s) { return s.type != JsonType::kNumber; });
        const std::optional<Decimal> value = Decimal::Of(only["multipleOf"]);
        const std::string digits = value ? value->integer + value->fraction : "0";
        const size_t first = digits.find_first_not_of('0');
        if (!value || value->is_negative || first == std::string::npos) {
          return Fault(negated, "multipleOf: must be a positive number");
        }
        for (Shape& shape : inside.shapes) {
          if (digits.size() - first > 9) {
            RefuseShape(negated, "multipleOf", "only numbers of up to 9 digits", shape);
          } else {
            shape.number.no_multiples.push_back({static_cast<uint32_t>(std::stoul(digits)),
                                                 static_cast<int>(value->fraction.size())});
          }
        }
        return Status::Ok();
      }));
    }
    NEREID_RETURN_IF_ERROR(CollectCountFailures(negated, of_type));
    for (const char* keyword : {"pattern", "format"}) {
      const Json* given = Find(negated, keyword);
      if (given == nullptr || !given->is_string()) continue;
      const std::string text = given->get<std::string>();
      if (keyword[0] == 'f' && PatternOfFormat(text).empty()) continue;  // an annotation
      NEREID_RETURN_IF_ERROR(of_type(JsonType::kString, [&](Shape& shape) {
        (keyword[0] == 'f' ? shape.string.excluded_formats : shape.string.excluded_patterns)
            .push_back(text);
      }));
    }
    NEREID_RETURN_IF_ERROR(CollectItemFailures(negated, of_type));
    for (const auto& [keyword, type] : {std::pair("uniqueItems", JsonType::kArray),
                                        std::pair("unevaluatedItems", JsonType::kArray),
                                        std::pair("patternProperties", JsonType::kObject),
                                        std::pair("additionalProperties", JsonType::kObject),
                                        std::pair("propertyNames", JsonType::kObject),
                                        std::pair("unevaluatedProperties", JsonType::kObject)}) {
      const Json* given = Find(negated, keyword);
      if (given == nullptr || (given->is_object() && given->empty())) continue;
      if (given->is_boolean() &&
          given->get<bool>() != (keyword == std::string_view("uniqueItems"))) {
        continue;  // never fails
      }
      NEREID_RETURN_IF_ERROR(refuse(keyword, type));
    }
    NEREID_RETURN_IF_ERROR(CollectPropertyFailures(negated, of_type, either, depth));
    if (const Json* all_of = Find(negated, "allOf")) {
      for (const Json& each : *all_of) NEREID_RETURN_IF_ERROR(fails(each));
    }
    if (const Json* any_of = Find(negated, "anyOf")) {
      NEREID_RETURN_IF_ERROR(either([&](State& inside) -> Status {
        for (const Json& each : *any_of) {
          NEREID_RETURN_IF_ERROR(ApplyNot(negated, each, inside, depth + 1));
        }
        return Status::Ok();
      }));
    }
    if (const Json* one_of = Find(negated, "oneOf")) {
      NEREID_RETURN_IF_ERROR(either([&](State& inside) -> Status {  // none
        for (const Json& each : *one_of) {
          NEREID_RETURN_IF_ERROR(ApplyNot(negated, each, inside, depth + 1));
        }
        return Status::Ok();
      }));
      for (size_t i = 0; i < one_of->size(); ++i) {  // two or more
        for (size_t j = 0; j < i; ++j) {
          NEREID_RETURN_IF_ERROR(either([&](State& inside) -> Status {
            NEREID_RETURN_IF_ERROR(Apply((*one_of)[i], inside, depth + 1));
            return Apply((*one_of)[j], inside, depth + 1);
          }));
        }
      }
    }
    if (const Json* inner = Find(negated, "not")) {
      NEREID_RETURN_IF_ERROR(
          either([&](State& inside) { return Apply(*inner, inside, depth + 1); }));
    }
    if (const Json* condition = Find(negated, "if")) {
      if (const Json* then = Find(negated, "then")) {
        NEREID_RETURN_IF_ERROR(either([&](State& inside) -> Status {
          NEREID_RETURN_IF_ERROR(Apply(*condition, inside, depth + 1));
          return ApplyNot(negated, *then, inside, depth + 1);
        }));
      }
      if (const Json* otherwise = Find(negated, "else")) {
        NEREID_RETURN_IF_ERROR(either([&](State& inside) -> Status {
          NEREID_RETURN_IF_ERROR(ApplyNot(negated, *condition, inside, depth + 1));
          return ApplyNot(negated, *otherwise, inside, depth + 1);
        }));
      }
    }
    return Status::Ok();
  }

  // Keeps the values of other types than those of `schema`.
  Status ApplyOtherTypes(const Json& schema, State& state) {
    State inside;
    inside.shapes = Shapes(6);
    for (int i = 0; i < 6; ++i) inside.shapes[i].type = static_cast<JsonType>(i);
    NEREID_RETURN_IF_ERROR(ApplyType(schema, inside));
    for (const Shape& each : inside.shapes) {
      if (each.number.is_integer && each.type == JsonType::kNumber) {
        std::erase_if(state.shapes, [](const Shape& shape) {
          return shape.type == JsonType::kNumber && shape.number.is_integer;
        });
        ForType(each.type, state, [](Shape& shape) { shape.number.is_fraction = true; });
      } else {
        std::erase_if(state.shapes, [&](const Shape& shape) { return shape.type == each.type; });
      }
    }
    return Status::Ok();
  }

  // Removes one value.
  Status Exclude(const Json& value, State& state) {
    const JsonType type = TypeOf(value);
    Shapes all;
    for (Shape& shape : state.shapes) {
      NEREID_RETURN_IF_ERROR(document_.Spend(1));
      if (shape.type != type) {
        all.push_back(std::move(shape));
        continue;
      }
      if (shape.values) {
        std::erase_if(*shape.values, [&](const Json* each) { return JsonEqual(*each, value); });
        if (!shape.values->empty()) all.push_back(std::move(shape));
        continue;
      }
      switch (type) {
        case JsonType::kNull:
          break;
        case JsonType::kBoolean:
          shape.values = {value.get<bool>() ? &kFalse : &kTrue};
          all.push_back(std::move(shape));
          break;
        case JsonType::kString:
          shape.string.excluded.push_back(value.get<std::string>());
          all.push_back(std::move(shape));
          break;
        case JsonType::kNumber: {
          const std::optional<Decimal> number = Decimal::Of(value);
          if (!number || number->integer.size() + number->fraction.size() > 15) {
            RefuseShape(value, "not", "a number of the schema is too large", shape);
          } else {
            shape.number.excluded.push_back(*number);
          }
          all.push_back(std::move(shape));
          break;
        }
        default:
          NEREID_RETURN_IF_ERROR(ExcludeStructure(value, shape, all));
      }
      if (all.size() > kMaxShapes) return TooMany(value, "not");
    }
    state.shapes = std::move(all);
    return Status::Ok();
  }

  // Arrays and objects that differ from `value` have another size, or another item or property.
  Status ExcludeStructure(const Json& value, const Shape& shape, Shapes& all) {
    const bool is_array = value.is_array();
    NEREID_RETURN_IF_ERROR(document_.Spend(1 + 10 * value.size()));
    Shape more = shape;
    uint64_t& min = is_array ? more.array.min_items : more.object.min_properties;
    min = std::max<uint64_t>(min, value.size() + 1);
    all.push_back(std::move(more));
    if (is_array && !value.empty()) {
      all.push_back(shape);
      Narrow(all.back().array.max_items, value.size() - 1);
    }
    size_t index = 0;
    for (auto it = value.begin(); it != value.end(); ++it, ++index) {
      if (all.size() > kMaxShapes) return TooMany(value, "not");
      Shape other = shape;
      if (is_array) {
        ArrayRules::Group group{std::vector<const Json*>(index, &kTrue), nullptr, false};
        group.first.push_back(document_.AnyBut(*it));
        other.array.groups.push_back(std::move(group));
        other.array.min_items = std::max<uint64_t>(other.array.min_items, index + 1);
      } else {
        all.push_back(shape);
        all.back().object.forbidden.push_back(it.key());
        RequireProperty(it.key(), document_.AnyBut(*it), other);
      }
      all.push_back(std::move(other));
    }
    return Status::Ok();
  }

  // Requires a property that is valid against `schema`.
  static void RequireProperty(std::string_view name, const Json* schema, Shape& shape) {
    auto group = std::make_shared<ObjectRules::Group>();
    group->evaluates = false;
    group->properties.emplace_back(name, schema);
    group->by_name.emplace(name, schema);
    shape.object.groups.push_back(std::move(group));
    shape.object.required.emplace_back(name);
  }

  template <typename OfType>
  Status CollectCountFailures(const Json& negated, const OfType& of_type) {
    struct Counted {
      const char *min_keyword, *max_keyword;
      JsonType type;
    };
    for (const auto& [min_keyword, max_keyword, type] :
         {Counted{"minLength", "maxLength", JsonType::kString},
          Counted{"minItems", "maxItems", JsonType::kArray},
          Counted{"minProperties", "maxProperties", JsonType::kObject}}) {
      std::optional<uint64_t> min, max;
      NEREID_RETURN_IF_ERROR(ReadRange(negated, min_keyword, max_keyword, min, max));
      const auto limits = [type = type](Shape& shape) {
        return type == JsonType::kString
                   ? std::tie(shape.string.min_length, shape.string.max_length)
               : type == JsonType::kArray
                   ? std::tie(shape.array.min_items, shape.array.max_items)
                   : std::tie(shape.object.min_properties, shape.object.max_properties);
      };
      if (min && *min > 0) {
        NEREID_RETURN_IF_ERROR(
            of_type(type, [&](Shape& shape) { Narrow(std::get<1>(limits(shape)), *min - 1); }));
      }
      if (max) {
        NEREID_RETURN_IF_ERROR(of_type(type, [&](Shape& shape) {
          uint64_t& own = std::get<0>(limits(shape));
          own = std::max(own, *max + 1);
        }));
      }
    }
    return Status::Ok();
  }

  template <typename OfType>
  Status CollectItemFailures(const Json& negated, const OfType& of_type) {
    State inside;
    inside.shapes.emplace_back().type = JsonType::kArray;
    NEREID_RETURN_IF_ERROR(ApplyArray(negated, inside));
    for (const ArrayRules::Group& group : inside.shapes[0].array.groups) {
      for (size_t i = 0; i < group.first.size(); ++i) {
        NEREID_ASSIGN_OR_RETURN(const Json* other, document_.Negation(*group.first[i]));
        NEREID_RETURN_IF_ERROR(of_type(JsonType::kArray, [&](Shape& shape) {
          ArrayRules::Group own{std::vector<const Json*>(i, &kTrue), nullptr, false};
          own.first.push_back(other);
          shape.array.groups.push_back(std::move(own));
          shape.array.min_items = std::max<uint64_t>(shape.array.min_items, i + 1);
        }));
      }
      if (group.rest == nullptr) continue;
      NEREID_ASSIGN_OR_RETURN(const Json* other, document_.Negation(*group.rest));
      NEREID_RETURN_IF_ERROR(of_type(JsonType::kArray, [&](Shape& shape) {
        shape.array.counts.push_back({other, group.first.size(), 1, std::nullopt, false});
      }));
    }
    for (ArrayRules::Count count : inside.shapes[0].array.counts) {
      count.evaluates = false;
      if (count.min > 0) {
        NEREID_RETURN_IF_ERROR(of_type(JsonType::kArray, [&](Shape& shape) {
          shape.array.counts.push_back({count.schema, 0, 0, count.min - 1, false});
        }));
      }
      if (!count.max) continue;
      NEREID_RETURN_IF_ERROR(of_type(JsonType::kArray, [&](Shape& shape) {
        shape.array.counts.push_back({count.schema, 0, *count.max + 1, std::nullopt, false});
      }));
    }
    return Status::Ok();
  }

  template <typename OfType, typename Either>
  Status CollectPropertyFailures(const Json& negated, const OfType& of_type, const Either& either,
                                 int depth) {
    const auto fault = [&](const char* keyword) {
      return Fault(negated, keyword, ": malformed inside of a negation");
    };
    if (const Json* given = Find(negated, "required"); given != nullptr && given->is_array()) {
      for (const Json& each : *given) {
        if (!each.is_string()) return fault("required");
        NEREID_RETURN_IF_ERROR(of_type(JsonType::kObject, [&](Shape& shape) {
          shape.object.forbidden.push_back(each.get<std::string>());
        }));
      }
    }
    if (const Json* given = Find(negated, "properties")) {
      if (!given->is_object()) return fault("properties");
      for (auto it = given->begin(); it != given->end(); ++it) {
        NEREID_ASSIGN_OR_RETURN(const Json* other, document_.Negation(*it));
        NEREID_RETURN_IF_ERROR(of_type(
            JsonType::kObject, [&](Shape& shape) { RequireProperty(it.key(), other, shape); }));
      }
    }
    for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
      const Json* given = Find(negated, keyword);
      if (given == nullptr) continue;
      if (!given->is_object()) return fault(keyword);
      for (auto it = given->begin(); it != given->end(); ++it) {
        const Json names = it->is_string() ? Json::array({*it}) : *it;
        if (names.is_array()) {
          for (const Json& name : names) {
            if (!name.is_string()) return fault(keyword);
            NEREID_RETURN_IF_ERROR(of_type(JsonType::kObject, [&](Shape& shape) {
              shape.object.required.push_back(it.key());
              shape.object.forbidden.push_back(name.get<std::string>());
            }));
          }
          continue;
        }
        NEREID_RETURN_IF_ERROR(either([&](State& inside) {
          std::erase_if(inside.shapes, [](const Shape& s) { return s.type != JsonType::kObject; });
          for (Shape& shape : inside.shapes) shape.object.required.push_back(it.key());
          return ApplyNot(negated, *it, inside, depth + 1);
        }));
      }
    }
    return Status::Ok();
  }

  // A dependency holds for objects without the property, or with it and with what it demands.
  Status ApplyDependencies(const Json& schema, State& state, int depth) {
    for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
      const Json* given = Find(schema, keyword);
      if (given == nullptr) continue;
      if (!given->is_object()) return Fault(schema, keyword, ": must be an object");
      for (auto it = given->begin(); it != given->end(); ++it) {
        State with{{}, state.applied};
        State without{{}, state.applied};
        for (Shape& shape : state.shapes) {
          if (shape.type == JsonType::kObject) {
            with.shapes.push_back(shape);
            with.shapes.back().object.required.push_back(it.key());
            shape.object.forbidden.push_back(it.key());
          }
          without.shapes.push_back(std::move(shape));
        }
        if (it->is_array()) {
          for (const Json& each : *it) {
            if (!each.is_string()) return Fault(schema, keyword, ": must have strings");
            for (Shape& shape : with.shapes) {
              shape.object.required.push_back(each.get<std::string>());
            }
          }
        } else if (it->is_string()) {
          for (Shape& shape : with.shapes) {
            shape.object.required.push_back(it->get<std::string>());
          }
        } else {
          NEREID_RETURN_IF_ERROR(Apply(*it, with, depth + 1));
        }
        state.shapes = std::move(without.shapes);
        for (Shape& shape : with.shapes) state.shapes.push_back(std::move(shape));
        if (state.shapes.size() > kMaxShapes) return TooMany(schema, keyword);
      }
    }
    return Status::Ok();
  }

  Status TooMany(const Json& schema, const char* keyword) {
    return Fault(schema, keyword, ": the schema has more than ", kMaxShapes,
                 " combinations of alternatives");
  }

  Status ApplyBranches(const Json& schema, const char* keyword, const Json& branches, State& state,
                       int depth) {
    if (!branches.is_array() || branches.empty()) {
      return Fault(schema, keyword, ": must be an array that is not empty");
    }
    NEREID_RETURN_IF_ERROR(document_.Spend(10 * state.shapes.size()));
    // Which branches are valid matters for what they evaluate: each set of them is an alternative.
    if (keyword[0] == 'a' && num_scopes_ > 0 && negations_ == 0) {
      std::vector<std::pair<State, bool>> sets{{std::move(state), false}};
      for (const Json& branch : branches) {
        for (size_t i = 0, num = sets.size(); i < num; ++i) {
          State inside = sets[i].first;
          NEREID_RETURN_IF_ERROR(document_.Spend(10 * inside.shapes.size()));
          NEREID_RETURN_IF_ERROR(Apply(branch, inside, depth + 1));
          if (!inside.shapes.empty()) sets.emplace_back(std::move(inside), true);
        }
        if (sets.size() > kMaxShapes) return TooMany(schema, keyword);
      }
      state = {};
      for (auto& [inside, has_branch] : sets) {
        if (has_branch) Append(std::move(inside.shapes), state.shapes);
      }
      return state.shapes.size() > kMaxShapes ? TooMany(schema, keyword) : Status::Ok();
    }
    std::vector<Shapes> all;
    size_t num_shapes = 0;
    for (const Json& branch : branches) {
      State inside = state;
      NEREID_RETURN_IF_ERROR(document_.Spend(10 * inside.shapes.size()));
      NEREID_RETURN_IF_ERROR(Apply(branch, inside, depth + 1));
      num_shapes += inside.shapes.size();
      if (num_shapes > kMaxShapes) return TooMany(schema, keyword);
      all.push_back(std::move(inside.shapes));
    }
    state.shapes.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      for (const Shape& shape : all[i]) {
        State inside{{shape}, state.applied};
        // With oneOf, what other branches hold as well is cut out.
        for (size_t j = 0; keyword[0] == 'o' && j < all.size() && !inside.shapes.empty(); ++j) {
          if (j == i) continue;
          bool is_disjoint = true;
          for (const Shape& other : all[j]) {
            NEREID_ASSIGN_OR_RETURN(is_disjoint, document_.AreDisjoint(shape, other, 0));
            if (!is_disjoint) break;
          }
          if (is_disjoint) continue;
          NEREID_RETURN_IF_ERROR(ApplyNot(schema, branches[j], inside, depth + 1));
        }
        Append(std::move(inside.shapes), state.shapes);
        if (state.shapes.size() > kMaxShapes) return TooMany(schema, keyword);
      }
    }
    return Status::Ok();
  }

  SchemaDocument& document_;
  std::vector<const Json*> active_;
  int num_scopes_ = 0;  // of unevaluatedItems and unevaluatedProperties that are being read
  int negations_ = 0;   // of `not` around what is being read
};

Result<std::shared_ptr<const Shapes>> SchemaDocument::Expand(const SchemaList& schemas) {
  if (const auto known = expanded_.find(schemas); known != expanded_.end()) return known->second;
  if (expand_depth_ > kMaxExpandDepth) {
    return InvalidArgError("#: oneOf: the schema is nested too deeply to tell its branches apart");
  }
  ++expand_depth_;
  Result<Shapes> read = ShapeReader(*this).Read(schemas);
  --expand_depth_;
  NEREID_ASSIGN_OR_RETURN(Shapes shapes, std::move(read));
  auto kept = std::make_shared<const Shapes>(std::move(shapes));
  expanded_.emplace(schemas, kept);
  return kept;
}

}  // namespace nereid::llm::grammar
