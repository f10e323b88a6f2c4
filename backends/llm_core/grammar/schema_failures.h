// What makes a schema fail: the values that are not valid against it. [one thread at a time]
#pragma once

#include <algorithm>

#include "backends/llm_core/grammar/schema_shape_reader.h"

namespace nereid::llm::grammar {

// Collects, keyword by keyword, the parts of some shapes that fail a schema. They may overlap.
class SchemaFailures {
 public:
  // All arguments outlive the object. `depth`: of the schema among those that are being applied.
  SchemaFailures(ShapeReader& reader, const Json& negated, const ShapeReader::State& state,
                 int depth)
      : reader_(reader),
        document_(reader.document_),
        negated_(negated),
        state_(state),
        depth_(depth) {}

  Status Collect();
  Shapes& shapes() { return all_; }

 private:
  // Each of these does so for some keywords. The first one says whether others count as well.
  Result<bool> CollectReferences();
  Status CollectValues();
  Status CollectNumbers();
  Status CollectMultiples();
  Status CollectStrings();
  Status CollectCounts();
  Status CollectItems();
  Status CollectProperties();
  Status CollectDependencies();
  Status CollectAnyProperties();
  Status CollectUnique();
  Status CollectUnevaluated();
  Status CollectBranches();
  Status CollectOneOf();
  Status CollectCondition();

  const Json* Find(const char* keyword) const { return ShapeReader::Find(negated_, keyword); }
  Status Fault(const char* keyword, const char* why) {
    return reader_.Fault(negated_, keyword, ": ", why);
  }

  // Adds all shapes after a change.
  template <typename Narrow>
  Status Either(const Narrow& narrow) {
    ShapeReader::State inside = state_;
    NEREID_RETURN_IF_ERROR(document_.Spend(1 + 4 * inside.shapes.size()));
    NEREID_RETURN_IF_ERROR(narrow(inside));
    ShapeReader::Append(std::move(inside.shapes), all_);
    return all_.size() > ShapeReader::kMaxShapes ? reader_.TooMany(negated_, "not") : Status::Ok();
  }
  // Adds the shapes of one type after a change of each.
  template <typename Change>
  Status OfType(JsonType type, const Change& change) {
    return Either([&](ShapeReader::State& inside) {
      std::erase_if(inside.shapes, [&](const Shape& shape) { return shape.type != type; });
      for (Shape& shape : inside.shapes) change(shape);
      return Status::Ok();
    });
  }
  // Adds what fails another schema.
  Status Fails(const Json& each) {
    return Either([&](ShapeReader::State& inside) {
      return reader_.ApplyNot(negated_, each, inside, depth_ + 1);
    });
  }
  // Narrows `inside` to what fails each of these.
  Status FailAll(const Json& schemas, ShapeReader::State& inside) {
    for (const Json& each : schemas) {
      NEREID_RETURN_IF_ERROR(reader_.ApplyNot(negated_, each, inside, depth_ + 1));
    }
    return Status::Ok();
  }

  ShapeReader& reader_;
  SchemaDocument& document_;
  const Json& negated_;
  const ShapeReader::State& state_;
  const int depth_;
  Shapes all_;
};

}  // namespace nereid::llm::grammar
