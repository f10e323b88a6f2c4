// SchemaBuilder, which writes the shapes of a schema as rules: see json_schema.h. It is apart from
// its methods because they fill several files.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backends/llm_core/grammar/code_points.h"
#include "backends/llm_core/grammar/schema_notation.h"
#include "backends/llm_core/grammar/schema_shape.h"
#include "backends/llm_core/grammar/syntax_graph.h"

namespace nereid::llm::grammar {

// [one thread at a time]
class SchemaBuilder {
 public:
  // `notation` outlives the builder.
  SchemaBuilder(SchemaDocument& document, int max_whitespace, const SchemaNotation& notation,
                SyntaxGraph& graph);

  // Adds the rules of the document, and returns their root.
  Result<RuleId> Build();

 private:
  static constexpr uint64_t kMaxCount = 100'000;  // of items or properties that are counted

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
  using Names = std::set<std::string, std::less<>>;

  TerminalId Token(RegexId regex) { return graph_.AddTerminal(pool_.Concat(space_, regex)); }
  StateId EndOf(RuleId rule) { return graph_.rule(rule).start + 1; }
  std::string PathOf(const SchemaList& schemas) const {
    return schemas.empty() ? "#" : document_.PathOf(schemas.front());
  }

  // Adds the rules of values that were read and have none yet.
  Status BuildPending();
  // Builds the root of a notation whose outermost object has no braces.
  Status BuildMembers(RuleId root);
  Result<Value> ValueOf(const SchemaList& schemas);
  Status AddValue(StateId from, StateId to, const SchemaList& schemas);
  void Connect(StateId from, const Value& value, StateId to);
  Result<RegexId> Scalar(const Shape& shape);
  // The values of a shape that fit its rules, and their texts.
  Result<std::vector<const Json*>> FittingValues(const Shape& shape);
  Result<RegexId> Values(const Shape& shape);
  Result<RegexId> Spell(const Json& value);
  // Strings, names and numbers in the notation.
  RegexId SpellWord(const std::string& word);  // null, true or false
  RegexId QuoteString(RegexId inside);
  RegexId SpellString(std::string_view text);
  Result<RegexId> SpellName(const std::string& name, bool is_bare);
  RegexId LimitNumber(RegexId number);

  // Arguments of calls, which are the members of an object without braces.
  Result<Value> ArgumentOf(const SchemaList& schemas, bool is_always_text);
  // Strings without quotes that the reader takes for strings.
  Result<RegexId> ArgumentText(const SchemaList& schemas, bool is_always_text);
  RegexId NoStringText();

  // Arrays. An ItemState is what is known before an item: the number of items, and of those that
  // each count counts; as far as it matters.
  using ItemState = std::vector<uint64_t>;
  Status AddArray(RuleId rule, const ArrayRules& rules);
  // The number of positions that differ in what may follow; further ones repeat the last.
  // `max_items` is what the schema allows. Errors: UNSUPPORTED if there are too many states.
  Result<uint64_t> NumPositions(const ArrayRules& rules, uint64_t max_items);
  // Adds to `schemas` and `next` what holds for an item that exactly the counts in `counted` count.
  // A count that only has a minimum may leave out an item. Returns false if it is not to be added.
  Result<bool> CountItem(const ArrayRules& rules, uint32_t counted, const ItemState& state,
                         ItemState& next, SchemaList& schemas);
  // Items that must differ: what reads the items of each position, the last one for all further
  // positions, and the greatest number of them that is certain to have an end.
  struct DifferentItems {
    std::vector<TerminalId> terminals;
    uint64_t max_items = 0;
  };
  Result<DifferentItems> ReadDifferentItems(const ArrayRules& rules);
  // The values of an item that must differ: their texts, each in all spellings that the grammar
  // has, and the values if they are few.
  struct ItemValues {
    RegexId regex = RegexPool::kNothing;
    bool are_many = false;
    std::set<std::string> values;
  };
  Result<ItemValues> ReadItemValues(const SchemaList& schemas, const std::string& path);
  Status AddItemValues(const Shape& shape, ItemValues& item);
  Result<RegexId> ReadItemNumbers(const Shape& shape, ItemValues& item);

  // Objects. How one is written around its members: terminals, or nothing.
  struct ObjectMarks {
    std::optional<TerminalId> open = {}, close = {}, comma = {}, name_begin = {}, colon = {};
    bool has_bare_names = false;
    const MemberNotation* members = nullptr;
  };
  ObjectMarks MarksOfObject() const;
  ObjectMarks MarksOfMembers(const MemberNotation& members);
  RegexId MemberSpace(const MemberNotation& members) const {
    return members.begin.empty() ? space_ : RegexPool::kEmpty;
  }
  void ReadMark(StateId from, std::optional<TerminalId> mark, StateId to);
  // The value of a property; `name`: of a listed one, or empty.
  Result<Value> PropertyValue(const SchemaList& schemas, std::string_view name,
                              const ObjectMarks& marks);
  struct Property {
    std::string text;
    TerminalId name;  // with the colon
    bool is_required;
    uint32_t selected;  // by which of ObjectRules::some
    SchemaList schemas;
    Value value;
  };
  struct OtherProperties {
    TerminalId name;
    uint32_t selected;
    SchemaList schemas;
    Value value;
  };
  // What divides the names that a schema does not list: a pattern, or a schema of names.
  struct NameTest {
    std::string_view pattern;
    const Json* schema = nullptr;  // instead of a pattern
    bool operator==(const NameTest&) const = default;
  };
  // Names that match exactly the tests in `matched`, and none of `taken`.
  struct NameClass {
    const ObjectRules& rules;
    const std::vector<NameTest>& tests;
    uint32_t matched;
    const Names& taken;
  };
  Status AddObject(RuleId rule, const ObjectRules& rules, const ObjectMarks& marks);
  class ObjectStates;
  // `is_possible` becomes false if a required property cannot exist.
  Status ReadProperties(const ObjectRules& rules, const ObjectMarks& marks,
                        std::vector<Property>& properties, std::vector<OtherProperties>& others,
                        bool& is_possible);
  // Names that the schema does not list, by the tests that they pass.
  Status ReadOthers(const ObjectRules& rules, const ObjectMarks& marks,
                    const std::vector<std::string>& listed, const Names& forbidden,
                    std::vector<OtherProperties>& others, std::vector<std::string>& few_names);
  static std::vector<NameTest> TestsOf(const ObjectRules& rules);
  static SchemaList SchemasOfOthers(const NameClass& names);
  static uint32_t SelectedOf(const NameClass& names);
  // With quotes as JSON. `any`: names that can be written.
  Result<RegexId> NamesOf(const NameClass& names, Spelling spelling, RegexId any);
  // Texts that are valid against all `schemas`, as names.
  Result<RegexId> ValidNames(const SchemaList& schemas, Spelling spelling);

  SchemaDocument& document_;
  SyntaxGraph& graph_;
  RegexPool& pool_;
  const SchemaNotation& notation_;
  // `any_name_` has quotes; `excluded_` are the strings that the notation does not have.
  RegexId space_ = RegexPool::kEmpty, any_name_ = RegexPool::kNothing,
          bare_name_ = RegexPool::kNothing, excluded_ = RegexPool::kNothing;
  std::map<char, TerminalId> marks_;
  std::map<SchemaList, Value> values_;
  std::map<std::pair<SchemaList, bool>, Value> arguments_;
  std::deque<Pending> pending_;
};

}  // namespace nereid::llm::grammar
