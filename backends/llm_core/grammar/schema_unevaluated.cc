// See schema_shape_reader.h: unevaluatedItems and unevaluatedProperties.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "backends/llm_core/grammar/schema_shape_reader.h"

namespace nereid::llm::grammar {

Status ShapeReader::ApplyInScope(const Json& schema, State& state, int depth) {
  std::set<const Json*> outside;  // schemas that were applied outside of the scope
  outside.swap(state.applied);
  state.applied.insert(&schema);
  for (Shape& shape : state.shapes) {
    shape.scopes.push_back(
        {shape.object.groups.size(), shape.array.groups.size(), shape.array.counts.size()});
  }
  // Inside of a negation, what is evaluated counts for the scopes that begin there.
  const int negations = std::exchange(negations_, 0);
  ++num_scopes_;
  active_.push_back(&schema);
  Status status = ApplyKeywords(schema, state, depth);
  active_.pop_back();
  --num_scopes_;
  negations_ = negations;
  state.applied.merge(outside);
  return status;
}

std::shared_ptr<ObjectRules::Group> ShapeReader::EvaluatedProperties(const Shape& shape) const {
  auto all = std::make_shared<ObjectRules::Group>();
  for (size_t i = shape.scopes.back().properties; i < shape.object.groups.size(); ++i) {
    const ObjectRules::Group& each = *shape.object.groups[i];
    if (!each.evaluates) continue;
    if (each.additional != nullptr) return nullptr;
    for (const auto& [name, own] : each.properties) all->properties.emplace_back(name, &kTrue);
    for (const auto& [name, own] : each.patterns) all->patterns.emplace_back(name, &kTrue);
  }
  for (const auto& [name, own] : all->properties) all->by_name.emplace(name, own);
  return all;
}

std::optional<ArrayRules::Group> ShapeReader::EvaluatedItems(const Shape& shape) const {
  ArrayRules::Group all;
  for (size_t i = shape.scopes.back().items; i < shape.array.groups.size(); ++i) {
    const ArrayRules::Group& each = shape.array.groups[i];
    if (!each.evaluates) continue;
    if (each.rest != nullptr) return std::nullopt;
    all.first.resize(std::max(all.first.size(), each.first.size()), &kTrue);
  }
  return all;
}

SchemaList ShapeReader::AllowedItems(const Json& schema, const Shape& shape) {
  SchemaList allowed{Find(schema, "unevaluatedItems")};
  for (size_t i = shape.scopes.back().counts; i < shape.array.counts.size(); ++i) {
    // An item that `contains` counts is evaluated.
    if (shape.array.counts[i].evaluates) allowed.push_back(shape.array.counts[i].schema);
  }
  return allowed;
}

void ShapeReader::EndScope(Shape& shape) {
  const Shape::Sizes from = shape.scopes.back();
  shape.scopes.pop_back();
  if (negations_ == 0) return;
  for (size_t i = from.properties; i < shape.object.groups.size(); ++i) {
    if (!shape.object.groups[i]->evaluates) continue;
    auto group = std::make_shared<ObjectRules::Group>(*shape.object.groups[i]);
    group->evaluates = false;
    shape.object.groups[i] = std::move(group);
  }
  for (size_t i = from.items; i < shape.array.groups.size(); ++i) {
    shape.array.groups[i].evaluates = false;
  }
  for (size_t i = from.counts; i < shape.array.counts.size(); ++i) {
    shape.array.counts[i].evaluates = false;
  }
}

Status ShapeReader::ApplyUnevaluated(const Json& schema, State& state) {
  const Json* properties = Find(schema, "unevaluatedProperties");
  const Json* items = Find(schema, "unevaluatedItems");
  for (Shape& shape : state.shapes) {
    if (shape.type == JsonType::kObject && properties != nullptr) {
      if (std::shared_ptr<ObjectRules::Group> group = EvaluatedProperties(shape)) {
        group->additional = properties;
        shape.object.groups.push_back(std::move(group));
      }
    }
    if (shape.type == JsonType::kArray && items != nullptr) {
      if (std::optional<ArrayRules::Group> group = EvaluatedItems(shape)) {
        NEREID_ASSIGN_OR_RETURN(group->rest, document_.AnyOf(AllowedItems(schema, shape)));
        shape.array.groups.push_back(*std::move(group));
      }
    }
    EndScope(shape);
  }
  return Status::Ok();
}

Status ShapeReader::FailUnevaluated(const Json& schema, const char* keyword, State& state) {
  const bool is_of_items = keyword == std::string_view("unevaluatedItems");
  const JsonType type = is_of_items ? JsonType::kArray : JsonType::kObject;
  std::erase_if(state.shapes, [&](const Shape& shape) {
    return shape.type != type || !(is_of_items ? EvaluatedItems(shape).has_value()
                                               : EvaluatedProperties(shape) != nullptr);
  });
  for (Shape& shape : state.shapes) {
    if (is_of_items) {
      NEREID_ASSIGN_OR_RETURN(const Json* failing, document_.NoneOf(AllowedItems(schema, shape)));
      const size_t num_evaluated = EvaluatedItems(shape)->first.size();
      shape.array.counts.push_back({failing, num_evaluated, 1, std::nullopt, false});
    } else {
      ObjectRules::Some some{.others_of = EvaluatedProperties(shape)};
      NEREID_ASSIGN_OR_RETURN(some.value, document_.Negation(*Find(schema, keyword)));
      shape.object.some.push_back(std::move(some));
    }
    EndScope(shape);
  }
  return Status::Ok();
}

}  // namespace nereid::llm::grammar
