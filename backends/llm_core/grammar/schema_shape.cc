// See schema_shape.h: how the keywords of a schema narrow shapes.
#include "backends/llm_core/grammar/schema_shape.h"

#include <algorithm>
#include <set>

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
    active_.push_back(&schema);
    Status status = ApplyKeywords(schema, state, depth);
    active_.pop_back();
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
      NEREID_RETURN_IF_ERROR(RefuseOthers(schema, state));
    }
    if (reference != nullptr) {
      if (!reference->is_string()) return Fault(schema, "$ref: must be a string");
      Result<const Json*> target = document_.Resolve(reference->get<std::string>());
      if (!target.ok()) return std::move(target).status().WithContext(document_.PathOf(&schema));
      NEREID_RETURN_IF_ERROR(Apply(**target, state, depth + 1));
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
    if (!value->IsInteger() || value->integer.size() > 9) {
      Refuse(schema, "multipleOf", "only integers up to 999999999 can be enforced",
             JsonType::kNumber, state);
      return Status::Ok();
    }
    const auto divisor = static_cast<uint32_t>(std::stoul(value->integer));
    ForType(JsonType::kNumber, state,
            [&](Shape& shape) { shape.number.multiples.push_back(divisor); });
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
    const Json* min_contains = Find(schema, "minContains");
    const bool is_free =
        min_contains != nullptr && *min_contains == 0 && Find(schema, "maxContains") == nullptr;
    if (contains != nullptr && !is_free) {
      Refuse(schema, "contains", "cannot be enforced", JsonType::kArray, state);
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

  Status RefuseOthers(const Json& schema, State& state) {
    if (Find(schema, "if") != nullptr &&
        (Find(schema, "then") != nullptr || Find(schema, "else") != nullptr)) {
      return Refusal(schema, "if: conditions cannot be enforced");
    }
    for (const char* keyword : {"$dynamicRef", "$recursiveRef"}) {
      if (Find(schema, keyword) != nullptr) return Refusal(schema, keyword, ": cannot be enforced");
    }
    const auto is_free = [](const Json& value) {
      return value == true || (value.is_object() && value.empty());
    };
    if (const Json* given = Find(schema, "unevaluatedProperties"); given && !is_free(*given)) {
      Refuse(schema, "unevaluatedProperties", "cannot be enforced", JsonType::kObject, state);
    }
    if (const Json* given = Find(schema, "unevaluatedItems"); given && !is_free(*given)) {
      Refuse(schema, "unevaluatedItems", "cannot be enforced", JsonType::kArray, state);
    }
    return Status::Ok();
  }

  // Holds negations of single keywords.
  Status ApplyNot(const Json& schema, const Json& negated, State& state, int depth) {
    if (negated.is_boolean()) {
      if (negated.get<bool>()) state.shapes.clear();
      return Status::Ok();
    }
    if (!negated.is_object()) return Fault(schema, "not: must be a schema");
    if (negated.empty()) {
      state.shapes.clear();
      return Status::Ok();
    }
    if (depth > kMaxDepth) return Fault(schema, "not: nested too deeply");
    const Status refusal = Refusal(schema, "not: this negation cannot be enforced");
    if (negated.size() != 1) return refusal;
    const std::string keyword = negated.begin().key();
    const Json& value = *negated.begin();
    if (keyword == "not") return Apply(value, state, depth + 1);
    if (keyword == "anyOf" && value.is_array()) {
      for (const Json& each : value) {
        NEREID_RETURN_IF_ERROR(ApplyNot(schema, each, state, depth + 1));
      }
      return Status::Ok();
    }
    if (keyword == "type") {
      State inside;
      inside.shapes = Shapes(6);
      for (int i = 0; i < 6; ++i) inside.shapes[i].type = static_cast<JsonType>(i);
      NEREID_RETURN_IF_ERROR(ApplyType(negated, inside));
      for (const Shape& each : inside.shapes) {
        if (each.number.is_integer && each.type == JsonType::kNumber) return refusal;
        std::erase_if(state.shapes, [&](const Shape& shape) { return shape.type == each.type; });
      }
      return Status::Ok();
    }
    if (keyword == "const" || (keyword == "enum" && value.is_array())) {
      const Json list = keyword == "const" ? Json::array({value}) : value;
      for (const Json& each : list) {
        const JsonType type = TypeOf(each);
        if (type == JsonType::kNull) {
          std::erase_if(state.shapes, [&](const Shape& shape) { return shape.type == type; });
        } else if (type == JsonType::kString) {
          ForType(type, state,
                  [&](Shape& shape) { shape.string.excluded.push_back(each.get<std::string>()); });
        } else if (type == JsonType::kBoolean) {
          const Json* other = each.get<bool>() ? &kFalse : &kTrue;
          for (Shape& shape : state.shapes) {
            if (shape.type != type) continue;
            if (!shape.values) {
              shape.values = {other};
            } else {
              std::erase_if(*shape.values, [&](const Json* v) { return *v == each; });
            }
          }
        } else {
          Refuse(schema, "not", "this value cannot be excluded", type, state);
        }
      }
      return Status::Ok();
    }
    if (keyword == "required" && value.is_array() && value.size() == 1 && value[0].is_string()) {
      std::erase_if(state.shapes, [](const Shape& s) { return s.type != JsonType::kObject; });
      ForType(JsonType::kObject, state,
              [&](Shape& shape) { shape.object.forbidden.push_back(value[0].get<std::string>()); });
      return Status::Ok();
    }
    if (keyword == "pattern" && value.is_string()) {
      std::erase_if(state.shapes, [](const Shape& s) { return s.type != JsonType::kString; });
      ForType(JsonType::kString, state, [&](Shape& shape) {
        shape.string.excluded_patterns.push_back(value.get<std::string>());
      });
      return Status::Ok();
    }
    return refusal;
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
    if (keyword[0] == 'o') {
      for (size_t i = 0; i < all.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          for (const Shape& x : all[i]) {
            for (const Shape& y : all[j]) {
              NEREID_ASSIGN_OR_RETURN(const bool disjoint, document_.AreDisjoint(x, y, 0));
              if (disjoint) continue;
              return Refusal(schema, "oneOf: branches ", j, " and ", i,
                             " may both be valid, which cannot be enforced");
            }
          }
        }
      }
    }
    state.shapes.clear();
    for (Shapes& shapes : all) {
      for (Shape& shape : shapes) state.shapes.push_back(std::move(shape));
    }
    return Status::Ok();
  }

  SchemaDocument& document_;
  std::vector<const Json*> active_;
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
