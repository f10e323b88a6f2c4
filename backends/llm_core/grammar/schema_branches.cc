// See schema_shape_reader.h: anyOf, oneOf and if.
#include "backends/llm_core/grammar/schema_shape_reader.h"

namespace nereid::llm::grammar {

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
  const bool is_any_of = std::string_view(keyword) == "anyOf";
  if (is_any_of && num_scopes_ > 0 && negations_ == 0) {
    return ApplySetsOfBranches(schema, branches, state, depth);
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
      if (!is_any_of) {
        NEREID_RETURN_IF_ERROR(CutOutOthers(schema, branches, all, i, shape, inside, depth));
      }
      Append(std::move(inside.shapes), state.shapes);
      if (state.shapes.size() > kMaxShapes) return TooMany(schema, keyword);
    }
  }
  return Status::Ok();
}

Status ShapeReader::ApplySetsOfBranches(const Json& schema, const Json& branches, State& state,
                                        int depth) {
  std::vector<std::pair<State, bool>> sets{{std::move(state), false}};
  for (const Json& branch : branches) {
    for (size_t i = 0, num = sets.size(); i < num; ++i) {
      State inside = sets[i].first;
      NEREID_RETURN_IF_ERROR(document_.Spend(10 * inside.shapes.size()));
      NEREID_RETURN_IF_ERROR(Apply(branch, inside, depth + 1));
      if (!inside.shapes.empty()) sets.emplace_back(std::move(inside), true);
      if (num_failing_scopes_ == 0) continue;
      NEREID_RETURN_IF_ERROR(ApplyNot(schema, branch, sets[i].first, depth + 1));
    }
    if (sets.size() > kMaxShapes) return TooMany(schema, "anyOf");
  }
  state = {};
  for (auto& [inside, has_branch] : sets) {
    if (has_branch) Append(std::move(inside.shapes), state.shapes);
  }
  return state.shapes.size() > kMaxShapes ? TooMany(schema, "anyOf") : Status::Ok();
}

Status ShapeReader::CutOutOthers(const Json& schema, const Json& branches,
                                 const std::vector<Shapes>& all, size_t own, const Shape& shape,
                                 State& inside, int depth) {
  for (size_t other = 0; other < all.size() && !inside.shapes.empty(); ++other) {
    if (other == own) continue;
    bool is_disjoint = true;
    for (const Shape& each : all[other]) {
      NEREID_ASSIGN_OR_RETURN(is_disjoint, document_.AreDisjoint(shape, each, 0));
      if (!is_disjoint) break;
    }
    if (is_disjoint) continue;
    NEREID_RETURN_IF_ERROR(ApplyNot(schema, branches[other], inside, depth + 1));
  }
  return Status::Ok();
}

}  // namespace nereid::llm::grammar
