// See schema_failures.h, and schema_shape_reader.h: `not`.
#include "backends/llm_core/grammar/schema_failures.h"

#include <algorithm>

#include "backends/llm_core/grammar/schema_format.h"

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
  SchemaFailures failures(*this, negated, state, depth);
  Status status = failures.Collect();
  --negations_;
  NEREID_RETURN_IF_ERROR(std::move(status));
  std::erase_if(failures.shapes(), IsImpossible);
  state.shapes = std::move(failures.shapes());
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

Status SchemaFailures::Collect() {
  NEREID_ASSIGN_OR_RETURN(const bool has_siblings, CollectReferences());
  if (!has_siblings) return Status::Ok();
  for (const auto collect :
       {&SchemaFailures::CollectValues, &SchemaFailures::CollectNumbers,
        &SchemaFailures::CollectMultiples, &SchemaFailures::CollectCounts,
        &SchemaFailures::CollectStrings, &SchemaFailures::CollectItems,
        &SchemaFailures::CollectUnique, &SchemaFailures::CollectUnevaluated,
        &SchemaFailures::CollectProperties, &SchemaFailures::CollectDependencies,
        &SchemaFailures::CollectAnyProperties, &SchemaFailures::CollectBranches,
        &SchemaFailures::CollectOneOf, &SchemaFailures::CollectCondition}) {
    NEREID_RETURN_IF_ERROR((this->*collect)());
  }
  return Status::Ok();
}

Result<bool> SchemaFailures::CollectReferences() {
  for (const char* keyword : {"$ref", "$dynamicRef", "$recursiveRef"}) {
    NEREID_ASSIGN_OR_RETURN(const Json* target, reader_.Target(negated_, keyword));
    if (target == nullptr) continue;
    NEREID_RETURN_IF_ERROR(Fails(*target));
    if (document_.reference_hides_siblings_) return false;
  }
  return true;
}

Status SchemaFailures::CollectValues() {
  if (Find("type") != nullptr) {
    NEREID_RETURN_IF_ERROR(Either(
        [&](ShapeReader::State& inside) { return reader_.ApplyOtherTypes(negated_, inside); }));
  }
  if (const Json* value = Find("const")) {
    NEREID_RETURN_IF_ERROR(
        Either([&](ShapeReader::State& inside) { return reader_.Exclude(*value, inside); }));
  }
  const Json* values = Find("enum");
  if (values == nullptr) return Status::Ok();
  return Either([&](ShapeReader::State& inside) -> Status {
    if (!values->is_array()) return Fault("enum", "must be an array");
    for (const Json& each : *values) NEREID_RETURN_IF_ERROR(reader_.Exclude(each, inside));
    return Status::Ok();
  });
}

Status SchemaFailures::CollectNumbers() {
  for (const BoundKeyword& keyword : kBoundKeywords) {
    const Json* given = Find(keyword.name);
    if (given == nullptr || given->is_boolean()) continue;
    const std::optional<Decimal> value = BoundOf(*given);
    const Json* flag = keyword.draft4_flag == nullptr ? nullptr : Find(keyword.draft4_flag);
    const bool is_exclusive = keyword.is_exclusive || (flag != nullptr && *flag == true);
    NEREID_RETURN_IF_ERROR(OfType(JsonType::kNumber, [&](Shape& shape) {
      if (!value) {
        return reader_.RefuseShape(negated_, keyword.name, "the bound is too large", shape);
      }
      (keyword.is_min ? shape.number.max : shape.number.min).push_back({*value, !is_exclusive});
    }));
  }
  return Status::Ok();
}

Status SchemaFailures::CollectMultiples() {
  if (Find("multipleOf") != nullptr) {
    const Json only = Json::object({{"multipleOf", *Find("multipleOf")}});
    NEREID_RETURN_IF_ERROR(Either([&](ShapeReader::State& inside) -> Status {
      std::erase_if(inside.shapes, [](const Shape& s) { return s.type != JsonType::kNumber; });
      const std::optional<Decimal> value = Decimal::Of(only["multipleOf"]);
      const std::string digits = value ? value->integer + value->fraction : "0";
      const size_t first = digits.find_first_not_of('0');
      if (!value || value->is_negative || first == std::string::npos) {
        return Fault("multipleOf", "must be a positive number");
      }
      for (Shape& shape : inside.shapes) {
        if (digits.size() - first > 9) {
          reader_.RefuseShape(negated_, "multipleOf", "only numbers of up to 9 digits", shape);
        } else {
          shape.number.no_multiples.push_back({static_cast<uint32_t>(std::stoul(digits)),
                                               static_cast<int>(value->fraction.size())});
        }
      }
      return Status::Ok();
    }));
  }
  return Status::Ok();
}

Status SchemaFailures::CollectStrings() {
  const Json* pattern = Find("pattern");
  if (pattern != nullptr && pattern->is_string()) {
    NEREID_RETURN_IF_ERROR(OfType(JsonType::kString, [&](Shape& shape) {
      shape.string.excluded_patterns.push_back(pattern->get<std::string>());
    }));
  }
  const Json* format = Find("format");
  if (format == nullptr || !format->is_string()) return Status::Ok();
  const std::string name = format->get<std::string>();
  if (PatternOfFormat(name).empty()) return Status::Ok();  // an annotation
  return OfType(JsonType::kString,
                [&](Shape& shape) { shape.string.excluded_formats.push_back(name); });
}

Status SchemaFailures::CollectUnique() {
  const Json* given = Find("uniqueItems");
  if (given == nullptr || *given != true) return Status::Ok();
  return OfType(JsonType::kArray, [&](Shape& shape) {
    reader_.RefuseShape(negated_, "uniqueItems", "its negation cannot be enforced", shape);
  });
}

Status SchemaFailures::CollectUnevaluated() {
  for (const char* keyword : {"unevaluatedItems", "unevaluatedProperties"}) {
    const Json* given = Find(keyword);
    if (given == nullptr || *given == true || (given->is_object() && given->empty())) {
      continue;  // never fails
    }
    // The other keywords hold; that one of them fails is collected elsewhere.
    NEREID_RETURN_IF_ERROR(Either([&](ShapeReader::State& inside) -> Status {
      ++reader_.num_failing_scopes_;
      Status status = reader_.ApplyInScope(negated_, inside, depth_ + 1);
      --reader_.num_failing_scopes_;
      NEREID_RETURN_IF_ERROR(std::move(status));
      return reader_.FailUnevaluated(negated_, keyword, inside);
    }));
  }
  return Status::Ok();
}

Status SchemaFailures::CollectBranches() {
  if (const Json* all_of = Find("allOf")) {
    for (const Json& each : *all_of) NEREID_RETURN_IF_ERROR(Fails(each));
  }
  if (const Json* any_of = Find("anyOf")) {
    NEREID_RETURN_IF_ERROR(
        Either([&](ShapeReader::State& inside) { return FailAll(*any_of, inside); }));
  }
  if (const Json* inner = Find("not")) {
    NEREID_RETURN_IF_ERROR(Either(
        [&](ShapeReader::State& inside) { return reader_.Apply(*inner, inside, depth_ + 1); }));
  }
  return Status::Ok();
}

Status SchemaFailures::CollectOneOf() {
  if (const Json* one_of = Find("oneOf")) {
    NEREID_RETURN_IF_ERROR(
        Either([&](ShapeReader::State& inside) { return FailAll(*one_of, inside); }));
    for (size_t i = 0; i < one_of->size(); ++i) {  // two or more
      for (size_t j = 0; j < i; ++j) {
        NEREID_RETURN_IF_ERROR(Either([&](ShapeReader::State& inside) -> Status {
          NEREID_RETURN_IF_ERROR(reader_.Apply((*one_of)[i], inside, depth_ + 1));
          return reader_.Apply((*one_of)[j], inside, depth_ + 1);
        }));
      }
    }
  }
  return Status::Ok();
}

Status SchemaFailures::CollectCondition() {
  if (const Json* condition = Find("if")) {
    if (const Json* then = Find("then")) {
      NEREID_RETURN_IF_ERROR(Either([&](ShapeReader::State& inside) -> Status {
        NEREID_RETURN_IF_ERROR(reader_.Apply(*condition, inside, depth_ + 1));
        return reader_.ApplyNot(negated_, *then, inside, depth_ + 1);
      }));
    }
    if (const Json* otherwise = Find("else")) {
      NEREID_RETURN_IF_ERROR(Either([&](ShapeReader::State& inside) -> Status {
        NEREID_RETURN_IF_ERROR(reader_.ApplyNot(negated_, *condition, inside, depth_ + 1));
        return reader_.ApplyNot(negated_, *otherwise, inside, depth_ + 1);
      }));
    }
  }
  return Status::Ok();
}

}  // namespace nereid::llm::grammar
