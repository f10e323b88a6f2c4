// See schema_builder.h: objects.
#include <algorithm>
#include <tuple>

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

Status SchemaBuilder::AddObject(RuleId rule, const ObjectRules& rules, const ObjectMarks& marks) {
  if (rules.max_properties.value_or(rules.min_properties) < rules.min_properties) {
    return Status::Ok();
  }
  if (rules.some.size() > kMaxDemands) {
    return UnsupportedError("not: more than ", kMaxDemands,
                            " negations about any property cannot be enforced");
  }
  std::vector<Property> properties;
  std::vector<OtherProperties> others;
  bool is_possible = true;
  NEREID_RETURN_IF_ERROR(ReadProperties(rules, marks, properties, others, is_possible));
  if (!is_possible) return Status::Ok();

  const uint64_t max = rules.max_properties.value_or(UINT64_MAX);
  const uint64_t counted =  // counts from here on are alike
      rules.max_properties ? max : std::max<uint64_t>(rules.min_properties, 1);
  if (counted > kMaxCount || (properties.size() + 1) * (counted + 1) > 20 * kMaxCount) {
    return UnsupportedError(
        "minProperties, maxProperties: counts of this size cannot be "
        "enforced");
  }
  std::vector<size_t> next_required(properties.size() + 1, properties.size());
  for (size_t i = properties.size(); i-- > 0;) {
    next_required[i] = properties[i].is_required ? i : next_required[i + 1];
  }
  // Behind a property, and before the name of one: by the number of properties that can no longer
  // come, the number of properties that have come, and the demands that are missing.
  using Place = std::tuple<size_t, uint64_t, uint32_t>;
  std::map<Place, StateId> behind, before;
  std::vector<Place> open;
  const auto state_behind = [&](size_t index, uint64_t count, uint32_t missing) {
    const auto [it, is_new] = behind.try_emplace({index, std::min(count, counted), missing}, 0);
    if (is_new) {
      it->second = graph_.AddState(rule);
      open.push_back(it->first);
    }
    return it->second;
  };
  ReadMark(graph_.rule(rule).start, marks.open, state_behind(0, 0, (1u << rules.some.size()) - 1));
  while (!open.empty() && !graph_.exhausted()) {
    const auto [index, count, missing] = open.back();
    open.pop_back();
    NEREID_RETURN_IF_ERROR(document_.Spend(1));
    const StateId here = behind[{index, count, missing}];
    if (next_required[index] == properties.size() && count >= rules.min_properties &&
        missing == 0) {
      ReadMark(here, marks.close, EndOf(rule));
    }
    if (count >= max) continue;
    StateId from = graph_.AddState(rule);
    if (count == 0) {
      graph_.Skip(here, from);
    } else {
      ReadMark(here, marks.comma, from);
    }
    for (size_t i = index;; ++i) {  // a chain of the names that may come
      const auto [it, is_new] = before.try_emplace({i, count, missing}, 0);
      if (!is_new) {
        graph_.Skip(from, it->second);
        break;
      }
      it->second = from;
      StateId value = 0;
      const auto connect = [&, next_count = count + 1](uint32_t still_missing, const Value& each) {
        Connect(value, each,
                state_behind(std::min(i + 1, properties.size()), next_count, still_missing));
      };
      if (i == properties.size()) {
        for (const OtherProperties& other : others) {
          const StateId name = graph_.AddState(rule), colon = graph_.AddState(rule);
          value = graph_.AddState(rule);
          ReadMark(from, marks.name_begin, name);
          graph_.Read(name, other.name, colon);
          ReadMark(colon, marks.colon, value);
          NEREID_RETURN_IF_ERROR(ForEachChoice(rules, other.selected, missing, other.schemas,
                                               other.value, connect, "", marks));
        }
        break;
      }
      value = graph_.AddState(rule);
      graph_.Read(from, properties[i].name, value);
      NEREID_RETURN_IF_ERROR(ForEachChoice(rules, properties[i].selected, missing,
                                           properties[i].schemas, properties[i].value, connect,
                                           properties[i].text, marks));
      if (properties[i].is_required) break;
      const StateId next = graph_.AddState(rule);
      graph_.Skip(from, next);
      from = next;
    }
  }
  return Status::Ok();
}

template <typename ForChoice>
Status SchemaBuilder::ForEachChoice(const ObjectRules& rules, uint32_t selected, uint32_t missing,
                                    const SchemaList& schemas, const Value& value,
                                    const ForChoice& connect, std::string_view name,
                                    const ObjectMarks& marks) {
  const uint32_t possible = selected & missing;
  connect(missing, value);
  for (uint32_t met = possible; met != 0; met = (met - 1) & possible) {
    NEREID_RETURN_IF_ERROR(document_.Spend(1));
    SchemaList all = schemas;
    for (size_t i = 0; i < rules.some.size(); ++i) {
      if ((met >> i & 1) != 0 && rules.some[i].value != nullptr) all.push_back(rules.some[i].value);
    }
    NEREID_ASSIGN_OR_RETURN(const Value each, PropertyValue(all, name, marks));
    connect(missing & ~met, each);
  }
  return Status::Ok();
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
