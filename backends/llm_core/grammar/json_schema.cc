// See json_schema.h.
#include "backends/llm_core/grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "backends/llm_core/grammar/code_points.h"
#include "backends/llm_core/grammar/json_text.h"
#include "backends/llm_core/grammar/regex_syntax.h"
#include "backends/llm_core/grammar/schema_shape.h"

namespace nereid::llm::grammar {
namespace {

constexpr uint64_t kMaxCount = 100'000;  // of items or properties that are counted
constexpr size_t kMaxPatterns = 5;       // of properties, in one object
constexpr size_t kMaxCounts = 4;         // contains, in one array
constexpr size_t kMaxFewNames = 64;      // that a pattern allows, to count as single names

class SchemaBuilder {
 public:
  SchemaBuilder(SchemaDocument& document, int max_whitespace, SyntaxGraph& graph)
      : document_(document), graph_(graph), pool_(graph.pool()) {
    ByteSet spaces;
    for (const char c : {' ', '\t', '\n', '\r'}) spaces.Add(static_cast<uint8_t>(c));
    space_ = pool_.Repeat(pool_.Bytes(spaces), 0, max_whitespace);
    for (const char c : {'{', '}', '[', ']', ',', ':'}) marks_[c] = Token(pool_.Literal({&c, 1}));
    any_name_ = AnyJsonString(pool_, Spelling::kJson);
  }

  Result<RuleId> Build() {
    const RuleId root = graph_.AddRule();
    const StateId end = graph_.AddState(root);
    graph_.Accept(end);
    NEREID_RETURN_IF_ERROR(AddValue(graph_.rule(root).start, end, {&document_.root()}));
    while (!pending_.empty() && !graph_.exhausted()) {
      const Pending next = std::move(pending_.front());
      pending_.pop_front();
      for (const Shape& shape : *next.shapes) {
        if (shape.values) continue;  // part of the terminal
        Status status;
        if (shape.type == JsonType::kArray) status = AddArray(next.rule, shape.array);
        if (shape.type == JsonType::kObject) status = AddObject(next.rule, shape.object);
        // Errors about subschemas name their own path.
        if (!status.ok() && !status.message().starts_with('#')) {
          return std::move(status).WithContext(PathOf(next.schemas));
        }
        NEREID_RETURN_IF_ERROR(std::move(status));
      }
    }
    return root;
  }

 private:
  // What reads a value: a terminal for values without structure, a rule for arrays and objects.
  struct Value {
    std::optional<TerminalId> terminal;
    std::optional<RuleId> rule;
    bool exists() const { return terminal || rule; }
  };
  struct Pending {  // a rule without states
    RuleId rule;
    std::shared_ptr<const Shapes> shapes;
    SchemaList schemas;
  };

  TerminalId Token(RegexId regex) { return graph_.AddTerminal(pool_.Concat(space_, regex)); }
  StateId EndOf(RuleId rule) { return graph_.rule(rule).start + 1; }

  Result<Value> ValueOf(const SchemaList& schemas) {
    if (const auto known = values_.find(schemas); known != values_.end()) return known->second;
    NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const Shapes> shapes, document_.Expand(schemas));
    Value value;
    std::vector<RegexId> scalars;
    bool has_structure = false;
    for (const Shape& shape : *shapes) {
      if (!shape.refusal.empty()) return Status(StatusCode::kUnsupported, shape.refusal);
      if (shape.values) {
        NEREID_ASSIGN_OR_RETURN(const RegexId regex, Values(shape));
        scalars.push_back(regex);
      } else if (shape.type == JsonType::kArray || shape.type == JsonType::kObject) {
        has_structure = true;
      } else {
        Result<RegexId> regex = Scalar(shape);
        if (!regex.ok()) return std::move(regex).status().WithContext(PathOf(schemas));
        scalars.push_back(*regex);
      }
    }
    const RegexId scalar = pool_.Union(std::move(scalars));
    if (pool_.IsAlive(scalar)) value.terminal = Token(scalar);
    if (has_structure) {
      value.rule = graph_.AddRule();
      graph_.Accept(graph_.AddState(*value.rule));  // EndOf(rule)
      pending_.push_back({*value.rule, shapes, schemas});
    }
    values_.emplace(schemas, value);
    return value;
  }

  std::string PathOf(const SchemaList& schemas) const {
    return schemas.empty() ? "#" : document_.PathOf(schemas.front());
  }

  Status AddValue(StateId from, StateId to, const SchemaList& schemas) {
    NEREID_ASSIGN_OR_RETURN(const Value value, ValueOf(schemas));
    if (value.terminal) graph_.Read(from, *value.terminal, to);
    if (value.rule) graph_.Call(from, *value.rule, to);
    return Status::Ok();
  }

  Result<RegexId> Scalar(const Shape& shape) {
    switch (shape.type) {
      case JsonType::kNull:
        return pool_.Literal("null");
      case JsonType::kBoolean:
        return pool_.Union({pool_.Literal("true"), pool_.Literal("false")});
      case JsonType::kNumber:
        return shape.number.Regex(pool_);
      default: {
        if (shape.string.IsFree()) return AnyJsonString(pool_, Spelling::kJsonAnyEscape);
        Result<RegexId> inside = document_.StringRegex(pool_, shape.string, true);
        if (!inside.ok()) return std::move(inside).status().WithContext("pattern");
        const RegexId quote = pool_.Literal("\"");
        return pool_.Concat({quote, *inside, quote});
      }
    }
  }

  // The texts of those values of a shape that fit its rules.
  Result<RegexId> Values(const Shape& shape) {
    Shape rules = shape;
    rules.values.reset();
    const bool is_free = IsFree(rules);
    std::vector<RegexId> parts;
    std::vector<std::string> plain;  // strings with one spelling
    for (const Json* value : *shape.values) {
      NEREID_RETURN_IF_ERROR(document_.Spend(1));
      if (!is_free) {
        NEREID_ASSIGN_OR_RETURN(const bool fits, document_.Fits(*value, rules));
        if (!fits) continue;
      }
      if (value->is_string() && IsPlain(value->get_ref<const std::string&>())) {
        plain.push_back('"' + value->get_ref<const std::string&>() + '"');
        continue;
      }
      NEREID_ASSIGN_OR_RETURN(const RegexId part, Spell(*value));
      parts.push_back(part);
    }
    parts.push_back(pool_.Literals(plain));
    return pool_.Union(std::move(parts));
  }

  static bool IsFree(const Shape& shape) {
    switch (shape.type) {
      case JsonType::kNumber:
        return shape.number.IsFree() && !shape.number.is_integer;
      case JsonType::kString:
        return shape.string.IsFree();
      case JsonType::kNull:
      case JsonType::kBoolean:
        return true;
      default:
        return false;
    }
  }
  static bool IsPlain(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) {
      return c >= 0x20 && c < 0x7F && c != '"' && c != '\\' && c != '/';
    });
  }

  Result<RegexId> Spell(const Json& value) {
    if (value.is_string()) return SpellJsonString(pool_, value.get_ref<const std::string&>());
    if (value.is_number()) {
      const std::optional<Decimal> number = Decimal::Of(value);
      if (!number || (value.is_number_float() && number->integer.size() > 15)) {
        return UnsupportedError("#: a number of the schema is too large");
      }
      return SpellNumber(pool_, *number);
    }
    if (!value.is_structured()) return pool_.Literal(value.dump());
    std::vector<RegexId> parts;
    const bool is_object = value.is_object();
    for (auto it = value.begin(); it != value.end(); ++it) {
      if (!parts.empty()) parts.push_back(pool_.Concat(space_, pool_.Literal(",")));
      if (is_object) {
        parts.push_back(pool_.Concat(space_, SpellJsonString(pool_, it.key())));
        parts.push_back(pool_.Concat(space_, pool_.Literal(":")));
      }
      NEREID_ASSIGN_OR_RETURN(const RegexId each, Spell(*it));
      parts.push_back(pool_.Concat(space_, each));
    }
    RegexId all = pool_.Concat(space_, pool_.Literal(is_object ? "}" : "]"));
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) all = pool_.Concat(*part, all);
    return pool_.Concat(pool_.Literal(is_object ? "{" : "["), all);
  }

  // What is known before an item: the number of items, and of those that each count counts; as far
  // as it matters.
  using ItemState = std::vector<uint64_t>;

  Status AddArray(RuleId rule, const ArrayRules& rules) {
    const uint64_t max = rules.max_items.value_or(kMaxCount + 1);
    if (max < rules.min_items) return Status::Ok();
    if (rules.counts.size() > kMaxCounts) {
      return UnsupportedError("contains: more than ", kMaxCounts, " of them cannot be enforced");
    }
    uint64_t num_positions =  // further ones repeat the last; the first one has no comma
        std::max({uint64_t{rules.NumFirst()}, rules.min_items, rules.max_items.value_or(0),
                  uint64_t{1}});
    uint64_t num_states = 1;
    for (const ArrayRules::Count& count : rules.counts) {
      num_positions = std::max(num_positions, count.from);
      num_states *= std::min(count.max.value_or(count.min), kMaxCount) + 1;
      if (num_states > kMaxCount) break;
    }
    if (num_positions > kMaxCount || num_positions * num_states > 10 * kMaxCount) {
      return UnsupportedError("minItems, maxItems, contains: counts over ", kMaxCount,
                              " cannot be enforced");
    }
    std::map<ItemState, StateId> known;
    std::vector<ItemState> open;
    const auto state_of = [&](const ItemState& state) {
      const auto [it, is_new] = known.try_emplace(state, 0);
      if (is_new) {
        it->second = graph_.AddState(rule);
        open.push_back(state);
      }
      return it->second;
    };
    graph_.Read(graph_.rule(rule).start, marks_['['], state_of(ItemState(1 + rules.counts.size())));
    while (!open.empty() && !graph_.exhausted()) {
      const ItemState state = std::move(open.back());
      open.pop_back();
      NEREID_RETURN_IF_ERROR(document_.Spend(1));
      const StateId before = known[state];
      bool is_enough = state[0] >= rules.min_items;
      for (size_t i = 0; i < rules.counts.size(); ++i) {
        is_enough &= state[i + 1] >= rules.counts[i].min;
      }
      if (is_enough) graph_.Read(before, marks_[']'], EndOf(rule));
      if (state[0] >= max) continue;
      StateId item = before;
      if (state[0] > 0) {
        item = graph_.AddState(rule);
        graph_.Read(before, marks_[','], item);
      }
      for (uint32_t counted = 0; counted < 1u << rules.counts.size(); ++counted) {
        SchemaList schemas = rules.SchemasOf(state[0]);
        ItemState next = state;
        next[0] = std::min(state[0] + 1, num_positions);
        NEREID_ASSIGN_OR_RETURN(const bool is_possible,
                                CountItem(rules, counted, state, next, schemas));
        if (is_possible) NEREID_RETURN_IF_ERROR(AddValue(item, state_of(next), schemas));
      }
    }
    return Status::Ok();
  }

  // Adds to `schemas` and `next` what holds for an item that exactly the counts in `counted` count.
  // A count that only has a minimum may leave out an item. Returns false if it is not to be added.
  Result<bool> CountItem(const ArrayRules& rules, uint32_t counted, const ItemState& state,
                         ItemState& next, SchemaList& schemas) {
    for (size_t i = 0; i < rules.counts.size(); ++i) {
      const ArrayRules::Count& count = rules.counts[i];
      const bool is_counted = (counted >> i & 1) != 0;
      const bool matters = state[0] >= count.from && (count.max || state[i + 1] < count.min);
      if (is_counted && (!matters || state[i + 1] >= count.max.value_or(UINT64_MAX))) return false;
      if (is_counted) {
        ++next[i + 1];
        schemas.push_back(count.schema);
      } else if (matters && count.max) {
        NEREID_ASSIGN_OR_RETURN(const Json* other, document_.Negation(*count.schema));
        schemas.push_back(other);
      }
    }
    return true;
  }

  struct Property {
    TerminalId name;  // with the colon
    bool is_required;
    Value value;
  };
  struct OtherProperties {
    TerminalId name;
    Value value;
  };

  Status AddObject(RuleId rule, const ObjectRules& rules) {
    if (rules.max_properties.value_or(rules.min_properties) < rules.min_properties) {
      return Status::Ok();
    }
    std::vector<Property> properties;
    std::vector<OtherProperties> others;
    bool is_possible = true;
    NEREID_RETURN_IF_ERROR(ReadProperties(rules, properties, others, is_possible));
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
    // come, and the number of properties that have come.
    std::map<std::pair<size_t, uint64_t>, StateId> behind, before;
    std::vector<std::pair<size_t, uint64_t>> open;
    const auto state_behind = [&](size_t index, uint64_t count) {
      const auto [it, is_new] = behind.try_emplace({index, std::min(count, counted)}, 0);
      if (is_new) {
        it->second = graph_.AddState(rule);
        open.push_back(it->first);
      }
      return it->second;
    };
    graph_.Read(graph_.rule(rule).start, marks_['{'], state_behind(0, 0));
    while (!open.empty() && !graph_.exhausted()) {
      const auto [index, count] = open.back();
      open.pop_back();
      NEREID_RETURN_IF_ERROR(document_.Spend(1));
      const StateId here = behind[{index, count}];
      if (next_required[index] == properties.size() && count >= rules.min_properties) {
        graph_.Read(here, marks_['}'], EndOf(rule));
      }
      if (count >= max) continue;
      StateId from = graph_.AddState(rule);
      if (count == 0) {
        graph_.Skip(here, from);
      } else {
        graph_.Read(here, marks_[','], from);
      }
      for (size_t i = index;; ++i) {  // a chain of the names that may come
        const auto [it, is_new] = before.try_emplace({i, count}, 0);
        if (!is_new) {
          graph_.Skip(from, it->second);
          break;
        }
        it->second = from;
        if (i == properties.size()) {
          for (const OtherProperties& other : others) {
            const StateId colon = graph_.AddState(rule), value = graph_.AddState(rule);
            graph_.Read(from, other.name, colon);
            graph_.Read(colon, marks_[':'], value);
            Connect(value, other.value, state_behind(i, count + 1));
          }
          break;
        }
        const StateId value = graph_.AddState(rule);
        graph_.Read(from, properties[i].name, value);
        Connect(value, properties[i].value, state_behind(i + 1, count + 1));
        if (properties[i].is_required) break;
        const StateId next = graph_.AddState(rule);
        graph_.Skip(from, next);
        from = next;
      }
    }
    return Status::Ok();
  }

  void Connect(StateId from, const Value& value, StateId to) {
    if (value.terminal) graph_.Read(from, *value.terminal, to);
    if (value.rule) graph_.Call(from, *value.rule, to);
  }

  // `is_possible` becomes false if a required property cannot exist.
  Status ReadProperties(const ObjectRules& rules, std::vector<Property>& properties,
                        std::vector<OtherProperties>& others, bool& is_possible) {
    std::vector<std::string> names;
    std::set<std::string, std::less<>> known;
    const std::set<std::string, std::less<>> required(rules.required.begin(), rules.required.end());
    const std::set<std::string, std::less<>> forbidden(rules.forbidden.begin(),
                                                       rules.forbidden.end());
    const auto add = [&](std::string_view name) {
      if (known.emplace(name).second) names.emplace_back(name);
    };
    for (const auto& group : rules.groups) {
      for (const auto& [name, schema] : group->properties) add(name);
    }
    for (const std::string& name : rules.required) add(name);
    std::vector<std::string> few_names;
    NEREID_RETURN_IF_ERROR(ReadOthers(rules, names, forbidden, others, few_names));
    for (const std::string& name : few_names) add(name);

    for (const std::string& name : names) {
      NEREID_RETURN_IF_ERROR(document_.Spend(5));
      const bool is_required = required.count(name) != 0;
      NEREID_ASSIGN_OR_RETURN(const bool is_name, document_.IsValid(Json(name), rules.names));
      Value value;
      if (is_name && forbidden.count(name) == 0) {
        NEREID_ASSIGN_OR_RETURN(const SchemaList schemas, document_.SchemasOfProperty(rules, name));
        NEREID_ASSIGN_OR_RETURN(value, ValueOf(schemas));
      }
      if (!value.exists()) {
        is_possible &= !is_required;
        continue;
      }
      const RegexId regex =
          pool_.Concat({SpellJsonString(pool_, name), space_, pool_.Literal(":")});
      properties.push_back({Token(regex), is_required, value});
    }
    return Status::Ok();
  }

  // Names that the schema does not list, by the patterns that they match.
  Status ReadOthers(const ObjectRules& rules, const std::vector<std::string>& listed,
                    const std::set<std::string, std::less<>>& forbidden,
                    std::vector<OtherProperties>& others, std::vector<std::string>& few_names) {
    std::vector<std::string_view> patterns;
    for (const auto& group : rules.groups) {
      for (const auto& [pattern, schema] : group->patterns) {
        if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end()) {
          patterns.push_back(pattern);
        }
      }
    }
    if (patterns.size() > kMaxPatterns) {
      return UnsupportedError("patternProperties: more than ", kMaxPatterns,
                              " patterns in one object cannot be enforced");
    }
    std::set<std::string, std::less<>> taken(listed.begin(), listed.end());
    taken.insert(forbidden.begin(), forbidden.end());
    for (uint32_t matched = 0; matched < 1u << patterns.size(); ++matched) {
      NEREID_ASSIGN_OR_RETURN(const SchemaList schemas, SchemasOfOthers(rules, patterns, matched));
      NEREID_ASSIGN_OR_RETURN(const Value value, ValueOf(schemas));
      if (!value.exists()) continue;
      if (!patterns.empty() || !rules.names.empty()) {
        // Few names are listed, so that no comma promises a name that is not left.
        NEREID_ASSIGN_OR_RETURN(const RegexId plain,
                                NamesOf(rules, patterns, matched, taken, Spelling::kUtf8));
        if (!pool_.IsAlive(plain)) continue;
        std::vector<std::string> texts;
        if (!pool_.IsInfinite(plain, kMaxFewNames, texts)) {
          std::sort(texts.begin(), texts.end());
          few_names.insert(few_names.end(), texts.begin(), texts.end());
          continue;
        }
      }
      NEREID_ASSIGN_OR_RETURN(const RegexId name,
                              NamesOf(rules, patterns, matched, taken, Spelling::kJson));
      if (pool_.IsAlive(name)) others.push_back({graph_.AddUniqueName(space_, name), value});
    }
    return Status::Ok();
  }

  Result<SchemaList> SchemasOfOthers(const ObjectRules& rules,
                                     const std::vector<std::string_view>& patterns,
                                     uint32_t matched) {
    SchemaList schemas;
    for (const auto& group : rules.groups) {
      bool is_known = false;
      for (const auto& [pattern, schema] : group->patterns) {
        const auto index = std::find(patterns.begin(), patterns.end(), pattern) - patterns.begin();
        if ((matched >> index & 1) == 0) continue;
        schemas.push_back(schema);
        is_known = true;
      }
      if (!is_known && group->additional != nullptr) schemas.push_back(group->additional);
    }
    return schemas;
  }

  // The names that match exactly these patterns and are not taken; with quotes as JSON.
  Result<RegexId> NamesOf(const ObjectRules& rules, const std::vector<std::string_view>& patterns,
                          uint32_t matched, const std::set<std::string, std::less<>>& taken,
                          Spelling spelling) {
    const bool is_json = spelling == Spelling::kJson;
    const RegexId quote = is_json ? pool_.Literal("\"") : RegexPool::kEmpty;
    const RegexId any = is_json ? any_name_
                                : pool_.Repeat(SpellSet(pool_, CodePointSet::All(), spelling), 0,
                                               RegexPool::kUnlimited);
    std::vector<RegexId> operands{any};
    for (size_t i = 0; i < patterns.size(); ++i) {
      Result<RegexId> parsed = ParseRegex(pool_, patterns[i], RegexMatch::kSearch, spelling);
      if (!parsed.ok()) return std::move(parsed).status().WithContext("patternProperties");
      const RegexId name = pool_.Concat({quote, *parsed, quote});
      operands.push_back(matched >> i & 1 ? name : pool_.Complement(name));
    }
    std::vector<RegexId> texts;
    for (const std::string& name : taken) {
      texts.push_back(pool_.Concat({quote, SpellText(pool_, name, spelling), quote}));
    }
    operands.push_back(pool_.Complement(pool_.Union(std::move(texts))));
    if (!rules.names.empty()) {
      NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const Shapes> shapes,
                              document_.Expand(rules.names));
      std::vector<RegexId> allowed;
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
        allowed.push_back(pool_.Concat({quote, pool_.Intersection(std::move(both)), quote}));
      }
      operands.push_back(pool_.Union(std::move(allowed)));
    }
    return pool_.Intersection(std::move(operands));
  }

  SchemaDocument& document_;
  SyntaxGraph& graph_;
  RegexPool& pool_;
  RegexId space_ = RegexPool::kEmpty, any_name_ = RegexPool::kNothing;
  std::map<char, TerminalId> marks_;
  std::map<SchemaList, Value> values_;
  std::deque<Pending> pending_;
};

}  // namespace

Result<RuleId> AddJsonSchema(std::string_view schema, int max_whitespace, SyntaxGraph& graph) {
  NEREID_ASSIGN_OR_RETURN(const std::unique_ptr<SchemaDocument> document,
                          SchemaDocument::Parse(schema));
  return SchemaBuilder(*document, max_whitespace, graph).Build();
}

}  // namespace nereid::llm::grammar
