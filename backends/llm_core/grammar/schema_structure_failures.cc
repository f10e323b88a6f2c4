// See schema_failures.h: the keywords of arrays and objects, and counts.
#include <algorithm>
#include <tuple>

#include "backends/llm_core/grammar/schema_failures.h"

namespace nereid::llm::grammar {

Status SchemaFailures::CollectCounts() {
  struct Counted {
    const char *min_keyword, *max_keyword;
    JsonType type;
  };
  for (const auto& [min_keyword, max_keyword, type] :
       {Counted{"minLength", "maxLength", JsonType::kString},
        Counted{"minItems", "maxItems", JsonType::kArray},
        Counted{"minProperties", "maxProperties", JsonType::kObject}}) {
    std::optional<uint64_t> min, max;
    NEREID_RETURN_IF_ERROR(reader_.ReadRange(negated_, min_keyword, max_keyword, min, max));
    const auto limits = [type = type](Shape& shape) {
      return type == JsonType::kString ? std::tie(shape.string.min_length, shape.string.max_length)
             : type == JsonType::kArray
                 ? std::tie(shape.array.min_items, shape.array.max_items)
                 : std::tie(shape.object.min_properties, shape.object.max_properties);
    };
    if (min && *min > 0) {
      NEREID_RETURN_IF_ERROR(OfType(
          type, [&](Shape& shape) { ShapeReader::Narrow(std::get<1>(limits(shape)), *min - 1); }));
    }
    if (max) {
      NEREID_RETURN_IF_ERROR(OfType(type, [&](Shape& shape) {
        uint64_t& own = std::get<0>(limits(shape));
        own = std::max(own, *max + 1);
      }));
    }
  }
  return Status::Ok();
}

Status SchemaFailures::CollectItems() {
  ShapeReader::State inside;
  inside.shapes.emplace_back().type = JsonType::kArray;
  NEREID_RETURN_IF_ERROR(reader_.ApplyArray(negated_, inside));
  for (const ArrayRules::Group& group : inside.shapes[0].array.groups) {
    for (size_t i = 0; i < group.first.size(); ++i) {
      NEREID_ASSIGN_OR_RETURN(const Json* other, document_.Negation(*group.first[i]));
      NEREID_RETURN_IF_ERROR(OfType(JsonType::kArray, [&](Shape& shape) {
        ArrayRules::Group own{std::vector<const Json*>(i, &ShapeReader::kTrue), nullptr, false};
        own.first.push_back(other);
        shape.array.groups.push_back(std::move(own));
        shape.array.min_items = std::max<uint64_t>(shape.array.min_items, i + 1);
      }));
    }
    if (group.rest == nullptr) continue;
    NEREID_ASSIGN_OR_RETURN(const Json* other, document_.Negation(*group.rest));
    NEREID_RETURN_IF_ERROR(OfType(JsonType::kArray, [&](Shape& shape) {
      shape.array.counts.push_back({other, group.first.size(), 1, std::nullopt, false});
    }));
  }
  for (ArrayRules::Count count : inside.shapes[0].array.counts) {
    count.evaluates = false;
    if (count.min > 0) {
      NEREID_RETURN_IF_ERROR(OfType(JsonType::kArray, [&](Shape& shape) {
        shape.array.counts.push_back({count.schema, 0, 0, count.min - 1, false});
      }));
    }
    if (!count.max) continue;
    NEREID_RETURN_IF_ERROR(OfType(JsonType::kArray, [&](Shape& shape) {
      shape.array.counts.push_back({count.schema, 0, *count.max + 1, std::nullopt, false});
    }));
  }
  return Status::Ok();
}

Status SchemaFailures::CollectProperties() {
  const auto fault = [&](const char* keyword) {
    return Fault(keyword, "malformed inside of a negation");
  };
  if (const Json* given = Find("required"); given != nullptr && given->is_array()) {
    for (const Json& each : *given) {
      if (!each.is_string()) return fault("required");
      NEREID_RETURN_IF_ERROR(OfType(JsonType::kObject, [&](Shape& shape) {
        shape.object.forbidden.push_back(each.get<std::string>());
      }));
    }
  }
  if (const Json* given = Find("properties")) {
    if (!given->is_object()) return fault("properties");
    for (auto it = given->begin(); it != given->end(); ++it) {
      NEREID_ASSIGN_OR_RETURN(const Json* other, document_.Negation(*it));
      NEREID_RETURN_IF_ERROR(OfType(JsonType::kObject, [&](Shape& shape) {
        ShapeReader::RequireProperty(it.key(), other, shape);
      }));
    }
  }
  return Status::Ok();
}

Status SchemaFailures::CollectDependencies() {
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Json* given = Find(keyword);
    if (given == nullptr) continue;
    if (!given->is_object()) return Fault(keyword, "malformed inside of a negation");
    for (auto it = given->begin(); it != given->end(); ++it) {
      const Json names = it->is_string() ? Json::array({*it}) : *it;
      if (names.is_array()) {
        for (const Json& name : names) {
          if (!name.is_string()) return Fault(keyword, "malformed inside of a negation");
          NEREID_RETURN_IF_ERROR(OfType(JsonType::kObject, [&](Shape& shape) {
            shape.object.required.push_back(it.key());
            shape.object.forbidden.push_back(name.get<std::string>());
          }));
        }
        continue;
      }
      NEREID_RETURN_IF_ERROR(Either([&](ShapeReader::State& inside) {
        std::erase_if(inside.shapes, [](const Shape& s) { return s.type != JsonType::kObject; });
        for (Shape& shape : inside.shapes) shape.object.required.push_back(it.key());
        return reader_.ApplyNot(negated_, *it, inside, depth_ + 1);
      }));
    }
  }
  return Status::Ok();
}

Status SchemaFailures::CollectAnyProperties() {
  if (const Json* names = Find("propertyNames")) {
    ObjectRules::Some some;
    NEREID_ASSIGN_OR_RETURN(some.name, document_.Negation(*names));
    NEREID_RETURN_IF_ERROR(
        OfType(JsonType::kObject, [&](Shape& shape) { shape.object.some.push_back(some); }));
  }
  ShapeReader::State inside;
  inside.shapes.emplace_back().type = JsonType::kObject;
  NEREID_RETURN_IF_ERROR(reader_.ApplyObject(negated_, inside));
  for (const auto& group : inside.shapes[0].object.groups) {
    for (const auto& [pattern, schema] : group->patterns) {
      ObjectRules::Some some{.pattern = pattern};
      NEREID_ASSIGN_OR_RETURN(some.value, document_.Negation(*schema));
      NEREID_RETURN_IF_ERROR(
          OfType(JsonType::kObject, [&](Shape& shape) { shape.object.some.push_back(some); }));
    }
    const auto never_fails = [](const Json& schema) {
      return schema == true || (schema.is_object() && schema.empty());
    };
    if (group->additional == nullptr || never_fails(*group->additional)) continue;
    ObjectRules::Some some{.others_of = group};
    NEREID_ASSIGN_OR_RETURN(some.value, document_.Negation(*group->additional));
    NEREID_RETURN_IF_ERROR(
        OfType(JsonType::kObject, [&](Shape& shape) { shape.object.some.push_back(some); }));
  }
  return Status::Ok();
}

}  // namespace nereid::llm::grammar
