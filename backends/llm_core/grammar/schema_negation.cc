// See schema_shape.h: what makes the keywords of a schema fail, and which keywords depend on that.
#include <algorithm>
#include <tuple>

#include "backends/llm_core/grammar/schema_format.h"
#include "backends/llm_core/grammar/schema_shape_reader.h"

namespace nereid::llm::grammar {

bool ShapeReader::IsImpossible(const Shape& shape) {
  if (shape.values && shape.values->empty()) return true;
  if (shape.type == JsonType::kArray) {
    return shape.array.max_items.value_or(UINT64_MAX) < shape.array.min_items;
  }
  if (shape.type != JsonType::kObject) return false;
  const ObjectRules& rules = shape.object;
  if (rules.max_properties.value_or(UINT64_MAX) < rules.min_properties) return true;
  return std::any_of(rules.required.begin(), rules.required.end(), [&](const std::string& name) {
    return std::find(rules.forbidden.begin(), rules.forbidden.end(), name) != rules.forbidden.end();
  });
}

Status ShapeReader::ApplyNot(const Json& schema, const Json& outer, State& state, int depth) {
  NEREID_RETURN_IF_ERROR(document_.Spend(1 + state.shapes.size()));
  NEREID_ASSIGN_OR_RETURN(const Json* entered, document_.Enter(outer));
  const Json& negated = *entered;
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

Status ShapeReader::CollectFailures(const Json& negated, const State& state, int depth,
                                    Shapes& all) {
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
    NEREID_RETURN_IF_ERROR(either([&](State& inside) { return ApplyOtherTypes(negated, inside); }));
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
  for (const auto& [keyword, type] :
       {std::pair("uniqueItems", JsonType::kArray), std::pair("unevaluatedItems", JsonType::kArray),
        std::pair("unevaluatedProperties", JsonType::kObject)}) {
    const Json* given = Find(negated, keyword);
    if (given == nullptr || (given->is_object() && given->empty())) continue;
    if (given->is_boolean() && given->get<bool>() != (keyword == std::string_view("uniqueItems"))) {
      continue;  // never fails
    }
    NEREID_RETURN_IF_ERROR(refuse(keyword, type));
  }
  NEREID_RETURN_IF_ERROR(CollectPropertyFailures(negated, of_type, either, depth));
  NEREID_RETURN_IF_ERROR(CollectAnyPropertyFailures(negated, of_type));
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
    NEREID_RETURN_IF_ERROR(either([&](State& inside) { return Apply(*inner, inside, depth + 1); }));
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

Status ShapeReader::ApplyOtherTypes(const Json& schema, State& state) {
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

Status ShapeReader::Exclude(const Json& value, State& state) {
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

Status ShapeReader::ExcludeStructure(const Json& value, const Shape& shape, Shapes& all) {
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

void ShapeReader::RequireProperty(std::string_view name, const Json* schema, Shape& shape) {
  auto group = std::make_shared<ObjectRules::Group>();
  group->evaluates = false;
  group->properties.emplace_back(name, schema);
  group->by_name.emplace(name, schema);
  shape.object.groups.push_back(std::move(group));
  shape.object.required.emplace_back(name);
}

template <typename OfType>
Status ShapeReader::CollectCountFailures(const Json& negated, const OfType& of_type) {
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
      return type == JsonType::kString ? std::tie(shape.string.min_length, shape.string.max_length)
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
Status ShapeReader::CollectItemFailures(const Json& negated, const OfType& of_type) {
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
Status ShapeReader::CollectPropertyFailures(const Json& negated, const OfType& of_type,
                                            const Either& either, int depth) {
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

template <typename OfType>
Status ShapeReader::CollectAnyPropertyFailures(const Json& negated, const OfType& of_type) {
  if (const Json* names = Find(negated, "propertyNames")) {
    ObjectRules::Some some;
    NEREID_ASSIGN_OR_RETURN(some.name, document_.Negation(*names));
    NEREID_RETURN_IF_ERROR(
        of_type(JsonType::kObject, [&](Shape& shape) { shape.object.some.push_back(some); }));
  }
  State inside;
  inside.shapes.emplace_back().type = JsonType::kObject;
  NEREID_RETURN_IF_ERROR(ApplyObject(negated, inside));
  for (const auto& group : inside.shapes[0].object.groups) {
    for (const auto& [pattern, schema] : group->patterns) {
      ObjectRules::Some some{.pattern = pattern};
      NEREID_ASSIGN_OR_RETURN(some.value, document_.Negation(*schema));
      NEREID_RETURN_IF_ERROR(
          of_type(JsonType::kObject, [&](Shape& shape) { shape.object.some.push_back(some); }));
    }
    const auto never_fails = [](const Json& schema) {
      return schema == true || (schema.is_object() && schema.empty());
    };
    if (group->additional == nullptr || never_fails(*group->additional)) continue;
    ObjectRules::Some some{.others_of = group};
    NEREID_ASSIGN_OR_RETURN(some.value, document_.Negation(*group->additional));
    NEREID_RETURN_IF_ERROR(
        of_type(JsonType::kObject, [&](Shape& shape) { shape.object.some.push_back(some); }));
  }
  return Status::Ok();
}

Status ShapeReader::ApplyCondition(const Json& schema, State& state, int depth) {
  const Json* condition = Find(schema, "if");
  const Json* then = Find(schema, "then");
  const Json* otherwise = Find(schema, "else");
  if (condition == nullptr) return Status::Ok();
  if (then == nullptr && otherwise == nullptr && num_scopes_ == 0) return Status::Ok();
  State without = state;
  std::set<const Json*> applied = state.applied;  // what has narrowed all shapes
  NEREID_RETURN_IF_ERROR(Apply(*condition, state, depth + 1));
  if (then != nullptr) NEREID_RETURN_IF_ERROR(Apply(*then, state, depth + 1));
  NEREID_RETURN_IF_ERROR(ApplyNot(schema, *condition, without, depth + 1));
  if (otherwise != nullptr) NEREID_RETURN_IF_ERROR(Apply(*otherwise, without, depth + 1));
  Append(std::move(without.shapes), state.shapes);
  state.applied = std::move(applied);
  return state.shapes.size() > kMaxShapes ? TooMany(schema, "if") : Status::Ok();
}

Status ShapeReader::ApplyBranches(const Json& schema, const char* keyword, const Json& branches,
                                  State& state, int depth) {
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

}  // namespace nereid::llm::grammar
