// See schema_shape.h: which values fit shapes, and which shapes have no value in common.
#include <algorithm>

#include "backends/llm_core/grammar/code_points.h"
#include "backends/llm_core/grammar/regex_syntax.h"
#include "backends/llm_core/grammar/schema_format.h"
#include "backends/llm_core/grammar/schema_shape.h"

namespace nereid::llm::grammar {
namespace {

constexpr int kMaxDisjointDepth = 6;

bool MayOverlap(uint64_t min_x, const std::optional<uint64_t>& max_x, uint64_t min_y,
                const std::optional<uint64_t>& max_y) {
  return min_x <= max_y.value_or(min_x) && min_y <= max_x.value_or(min_y);
}

bool Contains(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

}  // namespace

Result<RegexId> SchemaDocument::StringRegex(RegexPool& pool, const StringRules& rules,
                                            bool is_json) {
  const Spelling plain = is_json ? Spelling::kJson : Spelling::kUtf8;
  const bool is_counted = rules.patterns.empty() && rules.excluded_patterns.empty() &&
                          rules.formats.empty() && rules.excluded_formats.empty() &&
                          rules.excluded.empty();
  const RegexId any =
      SpellSet(pool, CodePointSet::All(), is_json && is_counted ? Spelling::kJsonAnyEscape : plain);
  const int max = rules.max_length ? static_cast<int>(*rules.max_length) : RegexPool::kUnlimited;
  if (rules.max_length && *rules.max_length < rules.min_length) return RegexPool::kNothing;
  std::vector<RegexId> operands{pool.Repeat(any, static_cast<int>(rules.min_length), max)};
  for (const std::string& pattern : rules.patterns) {
    NEREID_ASSIGN_OR_RETURN(const RegexId each,
                            ParseRegex(pool, pattern, RegexMatch::kSearch, plain));
    operands.push_back(each);
  }
  for (const std::string& pattern : rules.excluded_patterns) {
    NEREID_ASSIGN_OR_RETURN(const RegexId each,
                            ParseRegex(pool, pattern, RegexMatch::kSearch, plain));
    operands.push_back(pool.Complement(each));
  }
  for (const std::string& format : rules.formats) {
    NEREID_ASSIGN_OR_RETURN(const RegexId each,
                            ParseRegex(pool, PatternOfFormat(format), RegexMatch::kWhole, plain));
    operands.push_back(each);
  }
  for (const std::string& format : rules.excluded_formats) {
    NEREID_ASSIGN_OR_RETURN(const RegexId each,
                            ParseRegex(pool, PatternOfFormat(format), RegexMatch::kWhole, plain));
    operands.push_back(pool.Complement(each));
  }
  std::vector<RegexId> excluded;
  for (const std::string& text : rules.excluded) excluded.push_back(SpellText(pool, text, plain));
  if (!excluded.empty()) operands.push_back(pool.Complement(pool.Union(std::move(excluded))));
  // A pattern is narrower than any text, which need not be intersected with it then.
  if (operands.size() == 2 && rules.patterns.size() + rules.formats.size() == 1 &&
      rules.min_length == 0 && !rules.max_length) {
    return operands[1];
  }
  return pool.Intersection(std::move(operands));
}

Result<bool> SchemaDocument::MatchesPattern(std::string_view pattern, std::string_view text) {
  auto known = patterns_.find(pattern);
  if (known == patterns_.end()) {
    NEREID_ASSIGN_OR_RETURN(const RegexId regex,
                            ParseRegex(*pool_, pattern, RegexMatch::kSearch, Spelling::kUtf8));
    known = patterns_.emplace(pattern, regex).first;
  }
  NEREID_RETURN_IF_ERROR(Spend(text.size()));
  return pool_->Matches(known->second, text);
}

Result<SchemaList> SchemaDocument::SchemasOfProperty(const ObjectRules& rules,
                                                     std::string_view name) {
  SchemaList schemas;
  for (const auto& group : rules.groups) {
    bool is_known = false;
    if (const auto own = group->by_name.find(name); own != group->by_name.end()) {
      schemas.push_back(own->second);
      is_known = true;
    }
    for (const auto& [pattern, schema] : group->patterns) {
      NEREID_ASSIGN_OR_RETURN(const bool matches, MatchesPattern(pattern, name));
      if (!matches) continue;
      schemas.push_back(schema);
      is_known = true;
    }
    if (!is_known && group->additional != nullptr) schemas.push_back(group->additional);
  }
  return schemas;
}

Result<bool> SchemaDocument::Selects(const ObjectRules::Some& some, std::string_view name) {
  if (some.name != nullptr) return IsValid(Json(name), {some.name});
  if (some.others_of == nullptr) return MatchesPattern(some.pattern, name);
  if (some.others_of->by_name.count(name) != 0) return false;
  for (const auto& [pattern, schema] : some.others_of->patterns) {
    NEREID_ASSIGN_OR_RETURN(const bool matches, MatchesPattern(pattern, name));
    if (matches) return false;
  }
  return true;
}

Result<bool> SchemaDocument::IsValid(const Json& value, const SchemaList& schemas) {
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const Shapes> shapes, Expand(schemas));
  for (const Shape& shape : *shapes) {
    NEREID_ASSIGN_OR_RETURN(const bool fits, Fits(value, shape));
    if (fits) return true;
  }
  return false;
}

Result<bool> SchemaDocument::Fits(const Json& value, const Shape& shape) {
  NEREID_RETURN_IF_ERROR(Spend(1));
  if (TypeOf(value) != shape.type) return false;
  if (!shape.refusal.empty()) return Status(StatusCode::kUnsupported, shape.refusal);
  if (shape.values &&
      std::none_of(shape.values->begin(), shape.values->end(),
                   [&](const Json* each) { return each == &value || JsonEqual(*each, value); })) {
    return false;
  }
  switch (shape.type) {
    case JsonType::kNumber: {
      const std::optional<Decimal> number = Decimal::Of(value);
      if (!number || (value.is_number_float() && number->integer.size() > 15)) {
        return UnsupportedError("#: a number of the schema is too large");
      }
      return shape.number.Contains(*number);
    }
    case JsonType::kString: {
      if (shape.string.IsFree()) return true;
      NEREID_ASSIGN_OR_RETURN(const RegexId regex, StringRegex(*pool_, shape.string, false));
      return pool_->Matches(regex, value.get_ref<const std::string&>());
    }
    case JsonType::kArray:
      return FitsArray(value, shape.array);
    case JsonType::kObject:
      return FitsObject(value, shape.object);
    default:
      return true;
  }
}

Result<bool> SchemaDocument::FitsArray(const Json& value, const ArrayRules& rules) {
  if (value.size() < rules.min_items || value.size() > rules.max_items.value_or(value.size())) {
    return false;
  }
  for (size_t i = 0; i < value.size(); ++i) {
    NEREID_ASSIGN_OR_RETURN(const bool valid, IsValid(value[i], rules.SchemasOf(i)));
    if (!valid) return false;
  }
  if (rules.unique_schema != nullptr) {
    NEREID_RETURN_IF_ERROR(Spend(value.size() * value.size()));
    for (size_t i = 0; i < value.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (JsonEqual(value[i], value[j])) return false;
      }
    }
  }
  for (const ArrayRules::Count& count : rules.counts) {
    uint64_t num_valid = 0;
    for (size_t i = count.from; i < value.size(); ++i) {
      NEREID_ASSIGN_OR_RETURN(const bool valid, IsValid(value[i], {count.schema}));
      num_valid += valid;
    }
    if (num_valid < count.min || num_valid > count.max.value_or(num_valid)) return false;
  }
  return true;
}

Result<bool> SchemaDocument::FitsObject(const Json& value, const ObjectRules& rules) {
  if (value.size() < rules.min_properties ||
      value.size() > rules.max_properties.value_or(value.size())) {
    return false;
  }
  for (const std::string& name : rules.required) {
    if (!value.contains(name)) return false;
  }
  for (const auto& [name, each] : value.items()) {
    if (Contains(rules.forbidden, name)) return false;
    NEREID_ASSIGN_OR_RETURN(const bool is_name, IsValid(Json(name), rules.names));
    if (!is_name) return false;
    NEREID_ASSIGN_OR_RETURN(const SchemaList schemas, SchemasOfProperty(rules, name));
    NEREID_ASSIGN_OR_RETURN(const bool valid, IsValid(each, schemas));
    if (!valid) return false;
  }
  for (const ObjectRules::Some& some : rules.some) {
    bool is_met = false;
    for (auto it = value.begin(); it != value.end() && !is_met; ++it) {
      NEREID_ASSIGN_OR_RETURN(is_met, Selects(some, it.key()));
      if (!is_met || some.value == nullptr) continue;
      NEREID_ASSIGN_OR_RETURN(is_met, IsValid(*it, {some.value}));
    }
    if (!is_met) return false;
  }
  return true;
}

Result<bool> SchemaDocument::AreDisjoint(const SchemaList& x, const SchemaList& y, int depth) {
  if (expand_depth_ > kMaxDisjointDepth) return false;
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const Shapes> left, Expand(x));
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const Shapes> right, Expand(y));
  for (const Shape& each : *left) {
    for (const Shape& other : *right) {
      NEREID_ASSIGN_OR_RETURN(const bool disjoint, AreDisjoint(each, other, depth));
      if (!disjoint) return false;
    }
  }
  return true;
}

Result<bool> SchemaDocument::AreDisjoint(const Shape& x, const Shape& y, int depth) {
  NEREID_RETURN_IF_ERROR(Spend(20));
  if (x.type != y.type) return true;
  if (depth > kMaxDisjointDepth || !x.refusal.empty() || !y.refusal.empty()) return false;
  for (const auto& [some, other] : {std::pair(&x, &y), std::pair(&y, &x)}) {
    if (!some->values) continue;
    for (const Json* value : *some->values) {
      NEREID_ASSIGN_OR_RETURN(const bool fits_other, Fits(*value, *other));
      if (!fits_other) continue;
      NEREID_ASSIGN_OR_RETURN(const bool fits, Fits(*value, *some));
      if (fits) return false;
    }
    return true;
  }
  switch (x.type) {
    case JsonType::kNumber: {
      // Numbers in both have a plain spelling in both.
      const RegexId both = pool_->Intersection({x.number.Regex(*pool_), y.number.Regex(*pool_)});
      const bool alive = pool_->IsAlive(both);
      NEREID_RETURN_IF_ERROR(Spend(100));
      return !alive;
    }
    case JsonType::kString: {
      NEREID_ASSIGN_OR_RETURN(const RegexId left, StringRegex(*pool_, x.string, false));
      NEREID_ASSIGN_OR_RETURN(const RegexId right, StringRegex(*pool_, y.string, false));
      const bool alive = pool_->IsAlive(pool_->Intersection({left, right}));
      NEREID_RETURN_IF_ERROR(Spend(100));
      return !alive;
    }
    case JsonType::kArray:
      return AreDisjointArrays(x.array, y.array, depth);
    case JsonType::kObject:
      return AreDisjointObjects(x.object, y.object, depth);
    default:
      return false;
  }
}

Result<bool> SchemaDocument::AreDisjointArrays(const ArrayRules& x, const ArrayRules& y,
                                               int depth) {
  if (!MayOverlap(x.min_items, x.max_items, y.min_items, y.max_items)) {
    return true;
  }
  const size_t num = std::min<size_t>(std::max(x.min_items, y.min_items),
                                      std::max(x.NumFirst(), y.NumFirst()) + 1);
  for (size_t i = 0; i < num; ++i) {
    NEREID_ASSIGN_OR_RETURN(const bool disjoint,
                            AreDisjoint(x.SchemasOf(i), y.SchemasOf(i), depth + 1));
    if (disjoint) return true;
  }
  return false;
}

Result<bool> SchemaDocument::AreDisjointObjects(const ObjectRules& x, const ObjectRules& y,
                                                int depth) {
  if (!MayOverlap(x.min_properties, x.max_properties, y.min_properties, y.max_properties)) {
    return true;
  }
  std::vector<std::string> required = x.required;
  required.insert(required.end(), y.required.begin(), y.required.end());
  // Names whose values are listed come first: they tell most schemas apart without recursion.
  std::stable_partition(required.begin(), required.end(), [&](const std::string& name) {
    const Result<SchemaList> schemas = SchemasOfProperty(x, name);
    return schemas.ok() && std::any_of(schemas->begin(), schemas->end(), [](const Json* each) {
             return each->is_object() && (each->contains("const") || each->contains("enum"));
           });
  });
  for (const std::string& name : required) {
    // A value in both has the property, whose value fits the schemas of both.
    if (Contains(x.forbidden, name) || Contains(y.forbidden, name)) return true;
    NEREID_ASSIGN_OR_RETURN(const SchemaList left, SchemasOfProperty(x, name));
    NEREID_ASSIGN_OR_RETURN(const SchemaList right, SchemasOfProperty(y, name));
    const Result<bool> disjoint = AreDisjoint(left, right, depth + 1);
    // Another property may tell the objects apart where this one cannot be enforced.
    if (!disjoint.ok() && disjoint.status().code() != StatusCode::kUnsupported) return disjoint;
    if (disjoint.ok() && *disjoint) return true;
  }
  return false;
}

}  // namespace nereid::llm::grammar
