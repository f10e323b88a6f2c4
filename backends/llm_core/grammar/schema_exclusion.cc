// See schema_shape_reader.h: values and types that are taken from shapes.
#include <algorithm>

#include "backends/llm_core/grammar/schema_shape_reader.h"

namespace nereid::llm::grammar {

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

}  // namespace nereid::llm::grammar
