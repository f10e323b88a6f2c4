// See schema_shape.h: how the keywords of a schema narrow shapes.
#include "backends/llm_core/grammar/schema_shape.h"

#include <algorithm>
#include <set>

#include "backends/llm_core/grammar/schema_format.h"
#include "backends/llm_core/grammar/schema_shape_reader.h"
#include "base/json_reader.h"

namespace nereid::llm::grammar {
namespace {

constexpr int kMaxExpandDepth = 16;
constexpr size_t kMaxValues = 1'000'000;

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

Result<Shapes> ShapeReader::Read(const SchemaList& schemas) {
  State state;
  for (const JsonType type : {JsonType::kNull, JsonType::kBoolean, JsonType::kNumber,
                              JsonType::kString, JsonType::kArray, JsonType::kObject}) {
    state.shapes.emplace_back().type = type;
  }
  for (const Json* schema : schemas) NEREID_RETURN_IF_ERROR(Apply(*schema, state, 0));
  return std::move(state.shapes);
}

void ShapeReader::Refuse(const Json& schema, const char* keyword, const char* why, JsonType type,
                         State& state) {
  for (Shape& shape : state.shapes) {
    if (shape.type == type && shape.refusal.empty()) {
      shape.refusal = StrCat(document_.PathOf(&schema), ": ", keyword, ": ", why);
    }
  }
}

Status ShapeReader::Apply(const Json& outer, State& state, int depth) {
  NEREID_RETURN_IF_ERROR(document_.Spend(1 + state.shapes.size()));
  NEREID_ASSIGN_OR_RETURN(const Json* entered, document_.Enter(outer));
  const Json& schema = *entered;
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
  if (has_scope) {
    NEREID_RETURN_IF_ERROR(ApplyInScope(schema, state, depth));
    return ApplyUnevaluated(schema, state);
  }
  active_.push_back(&schema);
  Status status = ApplyKeywords(schema, state, depth);
  active_.pop_back();
  return status;
}

Status ShapeReader::ApplyKeywords(const Json& schema, State& state, int depth) {
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

Status ShapeReader::ApplyType(const Json& schema, State& state) {
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

Status ShapeReader::ApplyValues(const Json& schema, State& state) {
  if (const Json* value = Find(schema, "const")) {
    NEREID_RETURN_IF_ERROR(KeepValues({value}, state));
  }
  const Json* given = Find(schema, "enum");
  if (given == nullptr) return Status::Ok();
  if (!given->is_array()) return Fault(schema, "enum: must be an array");
  if (given->size() > kMaxValues) return Fault(schema, "enum: too many values");
  std::vector<const Json*> values;
  for (const Json& each : *given) values.push_back(&each);
  return KeepValues(values, state);
}

Status ShapeReader::KeepValues(const std::vector<const Json*>& values, State& state) {
  NEREID_RETURN_IF_ERROR(document_.Spend(values.size()));
  for (Shape& shape : state.shapes) {
    std::vector<const Json*> kept;
    for (const Json* each : values) {
      if (TypeOf(*each) != shape.type) continue;
      if (shape.values) {
        NEREID_RETURN_IF_ERROR(document_.Spend(shape.values->size()));
        const auto is_equal = [&](const Json* other) { return JsonEqual(*each, *other); };
        if (std::none_of(shape.values->begin(), shape.values->end(), is_equal)) continue;
      }
      kept.push_back(each);
    }
    shape.values = std::move(kept);
  }
  std::erase_if(state.shapes, [](const Shape& shape) { return shape.values->empty(); });
  return Status::Ok();
}

Status ShapeReader::ApplyNumber(const Json& schema, State& state) {
  for (const BoundKeyword& keyword : kBoundKeywords) {
    const Json* given = Find(schema, keyword.name);
    if (given == nullptr || given->is_boolean()) continue;
    if (!given->is_number()) return Fault(schema, keyword.name, ": must be a number");
    const std::optional<Decimal> value = BoundOf(*given);
    if (!value) {
      Refuse(schema, keyword.name, "the bound is too large", JsonType::kNumber, state);
      continue;
    }
    const Json* flag = keyword.draft4_flag == nullptr ? nullptr : Find(schema, keyword.draft4_flag);
    const bool is_exclusive = keyword.is_exclusive || (flag != nullptr && *flag == true);
    ForType(JsonType::kNumber, state, [&](Shape& shape) {
      (keyword.is_min ? shape.number.min : shape.number.max).push_back({*value, is_exclusive});
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
  ForType(JsonType::kNumber, state, [&](Shape& shape) { shape.number.multiples.push_back(each); });
  return Status::Ok();
}

Status ShapeReader::ReadCount(const Json& schema, const char* keyword,
                              std::optional<uint64_t>& count) {
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

Status ShapeReader::ReadRange(const Json& schema, const char* min_keyword, const char* max_keyword,
                              std::optional<uint64_t>& min, std::optional<uint64_t>& max) {
  NEREID_RETURN_IF_ERROR(ReadCount(schema, min_keyword, min));
  NEREID_RETURN_IF_ERROR(ReadCount(schema, max_keyword, max));
  if (max == 1'000'000'000u) max.reset();  // no text is as long
  return Status::Ok();
}

Status ShapeReader::ApplyString(const Json& schema, State& state) {
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

Status ShapeReader::ApplyArray(const Json& schema, State& state) {
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
    ForType(JsonType::kArray, state, [&](Shape& shape) { shape.array.unique_schema = &schema; });
  }
  const Json* contains = Find(schema, "contains");
  if (contains != nullptr) {
    std::optional<uint64_t> least, most;
    NEREID_RETURN_IF_ERROR(ReadRange(schema, "minContains", "maxContains", least, most));
    ForType(JsonType::kArray, state, [&](Shape& shape) {
      shape.array.counts.push_back(
          {contains, 0, least.value_or(1), most, negations_ == 0 && document_.contains_evaluates_});
    });
  }
  return Status::Ok();
}

Status ShapeReader::ApplyObject(const Json& schema, State& state) {
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

Result<const Json*> ShapeReader::Target(const Json& schema, const char* keyword) {
  const Json* reference = Find(schema, keyword);
  if (reference == nullptr) return nullptr;
  if (!reference->is_string()) return Fault(schema, keyword, ": must be a string");
  const std::string& name = reference->get_ref<const std::string&>();
  const bool is_dynamic = keyword != std::string_view("$ref");
  Result<const Json*> target =
      is_dynamic ? document_.ResolveDynamic(schema, name) : document_.Resolve(schema, name);
  if (!target.ok()) return std::move(target).status().WithContext(document_.PathOf(&schema));
  return document_.InScope(**target, document_.ScopeOf(schema));
}

void ShapeReader::RefuseShape(const Json& schema, const char* keyword, const char* why,
                              Shape& shape) {
  if (!shape.refusal.empty()) return;
  shape.refusal = StrCat(document_.PathOf(&schema), ": ", keyword, ": ", why);
}

Status ShapeReader::ApplyDependencies(const Json& schema, State& state, int depth) {
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

Status ShapeReader::TooMany(const Json& schema, const char* keyword) {
  return Fault(schema, keyword, ": the schema has more than ", kMaxShapes,
               " combinations of alternatives");
}

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
