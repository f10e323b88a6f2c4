// See schema_builder.h: objects.
#include <algorithm>
#include <compare>
#include <map>

#include "backends/llm_core/grammar/json_text.h"
#include "backends/llm_core/grammar/regex_syntax.h"
#include "backends/llm_core/grammar/schema_builder.h"

namespace nereid::llm::grammar {
namespace {

constexpr size_t kMaxNameTests = 5;  // of properties, in one object
constexpr size_t kMaxDemands = 4;    // ObjectRules::some, in one object
constexpr size_t kMaxFewNames = 64;  // that a test allows, to count as single names

}  // namespace

SchemaBuilder::ObjectMarks SchemaBuilder::MarksOfObject() const {
  return {.open = marks_.at('{'),
          .close = marks_.at('}'),
          .comma = marks_.at(','),
          .colon = marks_.at(':'),
          .has_bare_names = notation_.has_bare_names};
}

SchemaBuilder::ObjectMarks SchemaBuilder::MarksOfMembers(const MemberNotation& members) {
  ObjectMarks marks{.has_bare_names = true, .members = &members};
  if (!members.separator.empty()) marks.comma = Token(pool_.Literal(members.separator));
  if (!members.begin.empty()) marks.name_begin = graph_.AddTerminal(pool_.Literal(members.begin));
  return marks;
}

void SchemaBuilder::ReadMark(StateId from, std::optional<TerminalId> mark, StateId to) {
  if (mark) {
    graph_.Read(from, *mark, to);
  } else {
    graph_.Skip(from, to);
  }
}

Result<SchemaBuilder::Value> SchemaBuilder::PropertyValue(const SchemaList& schemas,
                                                          std::string_view name,
                                                          const ObjectMarks& marks) {
  if (marks.members == nullptr) return ValueOf(schemas);
  return ArgumentOf(schemas, marks.members->all_are_texts || marks.members->texts.contains(name));
}

// The states of a rule that reads an object. There is one behind a property and one before the name
// of the next for each place: the number of properties that can no longer come, the number of
// properties that have come, and the demands that are missing.
class SchemaBuilder::ObjectStates {
 public:
  // `builder`, `rules` and `marks` outlive the object.
  ObjectStates(SchemaBuilder& builder, RuleId rule, const ObjectRules& rules,
               const ObjectMarks& marks)
      : builder_(builder), graph_(builder.graph_), rule_(rule), rules_(rules), marks_(marks) {}

  // UNSUPPORTED if there would be too many of them.
  Status Add() {
    bool is_possible = true;
    NEREID_RETURN_IF_ERROR(
        builder_.ReadProperties(rules_, marks_, properties_, others_, is_possible));
    if (!is_possible) return Status::Ok();
    NEREID_RETURN_IF_ERROR(CheckCounts());
    next_required_.assign(properties_.size() + 1, properties_.size());
    for (size_t i = properties_.size(); i-- > 0;) {
      next_required_[i] = properties_[i].is_required ? i : next_required_[i + 1];
    }
    builder_.ReadMark(graph_.rule(rule_).start, marks_.open,
                      StateBehind({0, 0, (1u << rules_.some.size()) - 1}));
    while (!open_.empty() && !graph_.exhausted()) {
      const Place place = open_.back();
      open_.pop_back();
      NEREID_RETURN_IF_ERROR(builder_.document_.Spend(1));
      NEREID_RETURN_IF_ERROR(AddPlace(place));
    }
    return Status::Ok();
  }

 private:
  struct Place {
    size_t index;      // of the first property that can still come
    uint64_t count;    // of properties that have come
    uint32_t missing;  // demands, one bit each
    auto operator<=>(const Place&) const = default;
  };

  Status CheckCounts() {
    max_ = rules_.max_properties.value_or(UINT64_MAX);
    counted_ = rules_.max_properties ? max_ : std::max<uint64_t>(rules_.min_properties, 1);
    if (counted_ <= kMaxCount && (properties_.size() + 1) * (counted_ + 1) <= 20 * kMaxCount) {
      return Status::Ok();
    }
    return UnsupportedError(
        "minProperties, maxProperties: counts of this size cannot be "
        "enforced");
  }

  StateId StateBehind(Place place) {
    place.count = std::min(place.count, counted_);
    const auto [it, is_new] = behind_.try_emplace(place, 0);
    if (is_new) {
      it->second = graph_.AddState(rule_);
      open_.push_back(place);
    }
    return it->second;
  }

  // Adds what may come at a place: the end of the object, or another property.
  Status AddPlace(const Place& place) {
    const StateId here = behind_[place];
    if (next_required_[place.index] == properties_.size() && place.count >= rules_.min_properties &&
        place.missing == 0) {
      builder_.ReadMark(here, marks_.close, builder_.EndOf(rule_));
    }
    if (place.count >= max_) return Status::Ok();
    const StateId from = graph_.AddState(rule_);
    if (place.count == 0) {
      graph_.Skip(here, from);
    } else {
      builder_.ReadMark(here, marks_.comma, from);
    }
    return AddNames(place, from);
  }

  // Adds a chain of the names that may come, from the state `from`.
  Status AddNames(Place place, StateId from) {
    for (;; ++place.index) {
      const auto [it, is_new] = before_.try_emplace(place, 0);
      if (!is_new) {
        graph_.Skip(from, it->second);
        return Status::Ok();
      }
      it->second = from;
      if (place.index == properties_.size()) return AddOthers(place, from);
      const Property& property = properties_[place.index];
      const StateId value = graph_.AddState(rule_);
      graph_.Read(from, property.name, value);
      NEREID_RETURN_IF_ERROR(AddValues(place, value, property.selected, property.schemas,
                                       property.value, property.text));
      if (property.is_required) return Status::Ok();
      const StateId next = graph_.AddState(rule_);
      graph_.Skip(from, next);
      from = next;
    }
  }

  // Adds the properties that the schema does not name.
  Status AddOthers(const Place& place, StateId from) {
    for (const OtherProperties& other : others_) {
      const StateId name = graph_.AddState(rule_), colon = graph_.AddState(rule_);
      const StateId value = graph_.AddState(rule_);
      builder_.ReadMark(from, marks_.name_begin, name);
      graph_.Read(name, other.name, colon);
      builder_.ReadMark(colon, marks_.colon, value);
      NEREID_RETURN_IF_ERROR(
          AddValues(place, value, other.selected, other.schemas, other.value, ""));
    }
    return Status::Ok();
  }

  // Adds the values of a property from the state `from`. `selected`: the demands that it may meet.
  // Which of them it does meet decides the place behind it.
  Status AddValues(const Place& place, StateId from, uint32_t selected, const SchemaList& schemas,
                   const Value& value, std::string_view name) {
    const size_t next = std::min(place.index + 1, properties_.size());
    const auto connect = [&](uint32_t still_missing, const Value& each) {
      builder_.Connect(from, each, StateBehind({next, place.count + 1, still_missing}));
    };
    const uint32_t possible = selected & place.missing;
    connect(place.missing, value);
    for (uint32_t met = possible; met != 0; met = (met - 1) & possible) {
      NEREID_RETURN_IF_ERROR(builder_.document_.Spend(1));
      SchemaList all = schemas;
      for (size_t i = 0; i < rules_.some.size(); ++i) {
        const ObjectRules::Some& demand = rules_.some[i];
        if ((met >> i & 1) != 0 && demand.value != nullptr) all.push_back(demand.value);
      }
      NEREID_ASSIGN_OR_RETURN(const Value each, builder_.PropertyValue(all, name, marks_));
      connect(place.missing & ~met, each);
    }
    return Status::Ok();
  }

  SchemaBuilder& builder_;
  SyntaxGraph& graph_;
  const RuleId rule_;
  const ObjectRules& rules_;
  const ObjectMarks& marks_;
  std::vector<Property> properties_;
  std::vector<OtherProperties> others_;
  uint64_t max_ = 0;                   // of properties
  uint64_t counted_ = 0;               // counts from here on are alike
  std::vector<size_t> next_required_;  // by property: the next required one
  std::map<Place, StateId> behind_, before_;
  std::vector<Place> open_;  // whose states have no edges yet
};

Status SchemaBuilder::AddObject(RuleId rule, const ObjectRules& rules, const ObjectMarks& marks) {
  if (rules.max_properties.value_or(rules.min_properties) < rules.min_properties) {
    return Status::Ok();
  }
  if (rules.some.size() > kMaxDemands) {
    return UnsupportedError("not: more than ", kMaxDemands,
                            " negations about any property cannot be enforced");
  }
  return ObjectStates(*this, rule, rules, marks).Add();
}

Status SchemaBuilder::ReadProperties(const ObjectRules& rules, const ObjectMarks& marks,
                                     std::vector<Property>& properties,
                                     std::vector<OtherProperties>& others, bool& is_possible) {
  std::vector<std::string> names;
  Names known;
  const Names required(rules.required.begin(), rules.required.end());
  const Names forbidden(rules.forbidden.begin(), rules.forbidden.end());
  const auto add = [&](std::string_view name) {
    if (known.emplace(name).second) names.emplace_back(name);
  };
  for (const auto& group : rules.groups) {
    for (const auto& [name, schema] : group->properties) add(name);
  }
  for (const std::string& name : rules.required) add(name);
  for (const ObjectRules::Some& some : rules.some) {
    if (some.others_of == nullptr) continue;
    for (const auto& [name, schema] : some.others_of->properties) add(name);
  }
  std::vector<std::string> few_names;
  NEREID_RETURN_IF_ERROR(ReadOthers(rules, marks, names, forbidden, others, few_names));
  for (const std::string& name : few_names) add(name);

  for (const std::string& name : names) {
    NEREID_RETURN_IF_ERROR(document_.Spend(5));
    const bool is_required = required.count(name) != 0;
    NEREID_ASSIGN_OR_RETURN(const bool is_name, document_.IsValid(Json(name), rules.names));
    Property property{name, 0, is_required, 0, {}, {}};
    if (is_name && forbidden.count(name) == 0) {
      NEREID_ASSIGN_OR_RETURN(property.schemas, document_.SchemasOfProperty(rules, name));
      NEREID_ASSIGN_OR_RETURN(property.value, PropertyValue(property.schemas, name, marks));
    }
    if (!property.value.exists()) {
      is_possible &= !is_required;
      continue;
    }
    for (size_t i = 0; i < rules.some.size(); ++i) {
      NEREID_ASSIGN_OR_RETURN(const bool selects, document_.Selects(rules.some[i], name));
      property.selected |= selects ? 1u << i : 0u;
    }
    NEREID_ASSIGN_OR_RETURN(const RegexId written, SpellName(name, marks.has_bare_names));
    if (marks.members == nullptr) {
      property.name = Token(pool_.Concat({written, space_, pool_.Literal(":")}));
    } else {
      property.name = graph_.AddTerminal(pool_.Concat(
          {MemberSpace(*marks.members), pool_.Literal(marks.members->begin), written}));
    }
    properties.push_back(std::move(property));
  }
  return Status::Ok();
}

std::vector<SchemaBuilder::NameTest> SchemaBuilder::TestsOf(const ObjectRules& rules) {
  std::vector<NameTest> tests;
  const auto add = [&](const NameTest& test) {
    if (std::find(tests.begin(), tests.end(), test) == tests.end()) tests.push_back(test);
  };
  for (const auto& group : rules.groups) {
    for (const auto& [pattern, schema] : group->patterns) add({pattern, nullptr});
  }
  for (const ObjectRules::Some& some : rules.some) {
    if (some.name != nullptr) {
      add({{}, some.name});
    } else if (some.others_of == nullptr) {
      add({some.pattern, nullptr});
    } else {
      for (const auto& [pattern, schema] : some.others_of->patterns) add({pattern, nullptr});
    }
  }
  return tests;
}

Status SchemaBuilder::ReadOthers(const ObjectRules& rules, const ObjectMarks& marks,
                                 const std::vector<std::string>& listed, const Names& forbidden,
                                 std::vector<OtherProperties>& others,
                                 std::vector<std::string>& few_names) {
  const std::vector<NameTest> tests = TestsOf(rules);
  if (tests.size() > kMaxNameTests) {
    return UnsupportedError("patternProperties: more than ", kMaxNameTests,
                            " patterns in one object cannot be enforced");
  }
  Names taken(listed.begin(), listed.end());
  taken.insert(forbidden.begin(), forbidden.end());
  const RegexId any_text =
      pool_.Repeat(SpellSet(pool_, CodePointSet::All(), Spelling::kUtf8), 0, RegexPool::kUnlimited);
  const RegexId any = marks.has_bare_names ? bare_name_ : any_text;
  for (uint32_t matched = 0; matched < 1u << tests.size(); ++matched) {
    const NameClass names{rules, tests, matched, taken};
    SchemaList schemas = SchemasOfOthers(names);
    NEREID_ASSIGN_OR_RETURN(const Value value, PropertyValue(schemas, "", marks));
    if (!value.exists()) continue;
    if (!tests.empty() || !rules.names.empty()) {
      // Few names are listed, so that no comma promises a name that is not left.
      NEREID_ASSIGN_OR_RETURN(const RegexId plain, NamesOf(names, Spelling::kUtf8, any));
      if (!pool_.IsAlive(plain)) continue;
      std::vector<std::string> texts;
      if (!pool_.IsInfinite(plain, kMaxFewNames, texts)) {
        std::sort(texts.begin(), texts.end());
        few_names.insert(few_names.end(), texts.begin(), texts.end());
        continue;
      }
    }
    NEREID_ASSIGN_OR_RETURN(const RegexId name, marks.has_bare_names
                                                    ? NamesOf(names, Spelling::kUtf8, bare_name_)
                                                    : NamesOf(names, Spelling::kJson, any_name_));
    if (!pool_.IsAlive(name)) continue;
    others.push_back({graph_.AddUniqueName(
                          marks.members == nullptr ? space_ : MemberSpace(*marks.members), name),
                      SelectedOf(names), std::move(schemas), value});
  }
  return Status::Ok();
}

SchemaList SchemaBuilder::SchemasOfOthers(const NameClass& names) {
  SchemaList schemas;
  for (const auto& group : names.rules.groups) {
    bool is_known = false;
    for (const auto& [pattern, schema] : group->patterns) {
      const auto test =
          std::find(names.tests.begin(), names.tests.end(), NameTest{pattern, nullptr});
      if ((names.matched >> (test - names.tests.begin()) & 1) == 0) continue;
      schemas.push_back(schema);
      is_known = true;
    }
    if (!is_known && group->additional != nullptr) schemas.push_back(group->additional);
  }
  return schemas;
}

uint32_t SchemaBuilder::SelectedOf(const NameClass& names) {
  const auto passes = [&](const NameTest& wanted) {
    const auto test = std::find(names.tests.begin(), names.tests.end(), wanted);
    return (names.matched >> (test - names.tests.begin()) & 1) != 0;
  };
  uint32_t selected = 0;
  for (size_t i = 0; i < names.rules.some.size(); ++i) {
    const ObjectRules::Some& some = names.rules.some[i];
    bool is_selected = true;
    if (some.name != nullptr) {
      is_selected = passes({{}, some.name});
    } else if (some.others_of == nullptr) {
      is_selected = passes({some.pattern, nullptr});
    } else {
      for (const auto& [pattern, schema] : some.others_of->patterns) {
        is_selected &= !passes({pattern, nullptr});
      }
    }
    selected |= is_selected ? 1u << i : 0u;
  }
  return selected;
}

Result<RegexId> SchemaBuilder::NamesOf(const NameClass& names, Spelling spelling, RegexId any) {
  const bool is_json = spelling == Spelling::kJson;
  const RegexId quote = is_json ? pool_.Literal("\"") : RegexPool::kEmpty;
  std::vector<RegexId> operands{any};
  for (size_t i = 0; i < names.tests.size(); ++i) {
    RegexId name = RegexPool::kNothing;
    if (names.tests[i].schema != nullptr) {
      NEREID_ASSIGN_OR_RETURN(name, ValidNames({names.tests[i].schema}, spelling));
    } else {
      Result<RegexId> parsed =
          ParseRegex(pool_, names.tests[i].pattern, RegexMatch::kSearch, spelling);
      if (!parsed.ok()) return std::move(parsed).status().WithContext("patternProperties");
      name = pool_.Concat({quote, *parsed, quote});
    }
    operands.push_back(names.matched >> i & 1 ? name : pool_.Complement(name));
  }
  std::vector<RegexId> texts;
  for (const std::string& name : names.taken) {
    texts.push_back(pool_.Concat({quote, SpellText(pool_, name, spelling), quote}));
  }
  operands.push_back(pool_.Complement(pool_.Union(std::move(texts))));
  if (!names.rules.names.empty()) {
    NEREID_ASSIGN_OR_RETURN(const RegexId allowed, ValidNames(names.rules.names, spelling));
    operands.push_back(allowed);
  }
  return pool_.Intersection(std::move(operands));
}

Result<RegexId> SchemaBuilder::ValidNames(const SchemaList& schemas, Spelling spelling) {
  const bool is_json = spelling == Spelling::kJson;
  const RegexId quote = is_json ? pool_.Literal("\"") : RegexPool::kEmpty;
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const Shapes> shapes, document_.Expand(schemas));
  std::vector<RegexId> valid;
  for (const Shape& shape : *shapes) {
    if (shape.type != JsonType::kString) continue;
    if (!shape.refusal.empty()) return Status(StatusCode::kUnsupported, shape.refusal);
    Result<RegexId> inside = document_.StringRegex(pool_, shape.string, is_json);
    if (!inside.ok()) return std::move(inside).status().WithContext("propertyNames");
    std::vector<RegexId> both{*inside};
    if (shape.values) {
      std::vector<RegexId> values;
      for (const Json* value : *shape.values) {
        values.push_back(SpellText(pool_, value->get_ref<const std::string&>(), spelling));
      }
      both.push_back(pool_.Union(std::move(values)));
    }
    valid.push_back(pool_.Concat({quote, pool_.Intersection(std::move(both)), quote}));
  }
  return pool_.Union(std::move(valid));
}

}  // namespace nereid::llm::grammar
