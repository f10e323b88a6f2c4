// See schema_builder.h: values in another notation than JSON's, and the arguments of calls.
#include <algorithm>

#include "backends/llm_core/grammar/json_text.h"
#include "backends/llm_core/grammar/schema_builder.h"

namespace nereid::llm::grammar {
namespace {

constexpr size_t kMaxNameBytes = 256;  // parsers of calls read no longer names

bool IsIdentifier(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && is_letter(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9');
  });
}

// Whether readers of all notations find the end of the name, and drop nothing of it.
bool IsBareName(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes || name.front() == ' ' || name.back() == ' ') {
    return false;
  }
  return std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7F &&
           std::string_view("<>{}[]|\"':,=").find(c) == std::string_view::npos;
  });
}

}  // namespace

RegexId SchemaBuilder::SpellWord(const std::string& word) {
  const RegexId own = pool_.Literal(word);
  if (!notation_.has_python_words) return own;
  const char* const python = word == "null" ? "None" : word == "true" ? "True" : "False";
  return pool_.Union({own, pool_.Literal(python)});
}

RegexId SchemaBuilder::QuoteString(RegexId inside) {
  if (excluded_ != RegexPool::kNothing) {
    inside = pool_.Intersection({inside, pool_.Complement(excluded_)});
  }
  const RegexId quote = pool_.Literal(notation_.HasJsonStrings() ? "\"" : notation_.quote);
  return pool_.Concat({quote, inside, quote});
}

RegexId SchemaBuilder::SpellString(std::string_view text) {
  return QuoteString(
      SpellText(pool_, text, notation_.HasJsonStrings() ? Spelling::kJson : Spelling::kUtf8));
}

Result<RegexId> SchemaBuilder::SpellName(const std::string& name, bool is_bare) {
  if (!is_bare) return SpellString(name);
  if (notation_.has_identifiers ? !IsIdentifier(name) : !IsBareName(name)) {
    return UnsupportedError("properties: '", name.substr(0, 100),
                            "' cannot be the name of an argument in these calls");
  }
  return pool_.Literal(name);
}

RegexId SchemaBuilder::LimitNumber(RegexId number) {
  if (!notation_.has_small_numbers) return number;
  const RegexId digit = pool_.Bytes(ByteSet::Range('0', '9'));
  ByteSet exponent, sign;
  exponent.Add('e'), exponent.Add('E'), sign.Add('+'), sign.Add('-');
  return pool_.Intersection(
      {number,
       pool_.Concat(
           {pool_.Optional(pool_.Literal("-")), pool_.Repeat(digit, 1, 100),
            pool_.Optional(pool_.Concat(pool_.Literal("."), pool_.Repeat(digit, 1, 100))),
            pool_.Optional(pool_.Concat({pool_.Bytes(exponent), pool_.Optional(pool_.Bytes(sign)),
                                         pool_.Repeat(digit, 1, 2)}))})});
}

Status SchemaBuilder::BuildMembers(RuleId root) {
  const SchemaList schemas{&document_.root()};
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const Shapes> shapes, document_.Expand(schemas));
  const ObjectMarks marks = MarksOfMembers(*notation_.members);
  for (const Shape& shape : *shapes) {
    if (shape.type != JsonType::kObject) continue;
    if (!shape.refusal.empty()) return Status(StatusCode::kUnsupported, shape.refusal);
    if (shape.values) {
      return UnsupportedError("#: enum: whole arguments cannot be listed in these calls");
    }
    Status status = AddObject(root, shape.object, marks);
    if (!status.ok() && !status.message().starts_with('#')) {
      return std::move(status).WithContext("#");
    }
    NEREID_RETURN_IF_ERROR(std::move(status));
  }
  return Status::Ok();
}

Result<SchemaBuilder::Value> SchemaBuilder::ArgumentOf(const SchemaList& schemas,
                                                       bool is_always_text) {
  const std::pair key(schemas, is_always_text);
  if (const auto known = arguments_.find(key); known != arguments_.end()) return known->second;
  const MemberNotation& members = *notation_.members;
  const RuleId rule = graph_.AddRule();
  const StateId start = graph_.rule(rule).start, end = graph_.AddState(rule);
  graph_.Accept(end);
  Value argument;
  for (const MemberNotation::Kind& kind : members.kinds) {
    SchemaList all = schemas;
    all.push_back(&kind.types);
    const TerminalId begin = graph_.AddTerminal(pool_.Literal(kind.begin));
    if (kind.is_text) {
      NEREID_ASSIGN_OR_RETURN(const RegexId text, ArgumentText(all, is_always_text));
      if (!pool_.IsAlive(text)) continue;
      const StateId inside = graph_.AddState(rule);
      graph_.Read(start, begin, inside);
      graph_.Read(inside, graph_.AddTerminal(pool_.Concat(text, pool_.Literal(members.end))), end);
    } else {
      NEREID_ASSIGN_OR_RETURN(const Value value, ValueOf(all));
      if (!value.exists()) continue;
      const StateId inside = graph_.AddState(rule), behind = graph_.AddState(rule);
      graph_.Read(start, begin, inside);
      Connect(inside, value, behind);
      ReadMark(behind,
               members.end.empty() ? std::nullopt
                                   : std::optional(graph_.AddTerminal(pool_.Literal(members.end))),
               end);
    }
    argument.rule = rule;
  }
  arguments_.emplace(key, argument);
  return argument;
}

Result<RegexId> SchemaBuilder::ArgumentText(const SchemaList& schemas, bool is_always_text) {
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const Shapes> shapes, document_.Expand(schemas));
  std::vector<RegexId> texts;
  for (const Shape& shape : *shapes) {
    if (!shape.refusal.empty()) return Status(StatusCode::kUnsupported, shape.refusal);
    if (shape.values) {
      NEREID_ASSIGN_OR_RETURN(const std::vector<const Json*> values, FittingValues(shape));
      for (const Json* value : values) {
        texts.push_back(pool_.Literal(value->get_ref<const std::string&>()));
      }
      continue;
    }
    Result<RegexId> text = document_.StringRegex(pool_, shape.string, false);
    if (!text.ok()) return std::move(text).status().WithContext(PathOf(schemas) + ": pattern");
    texts.push_back(*text);
  }
  std::vector<RegexId> operands{pool_.Union(std::move(texts))};
  if (excluded_ != RegexPool::kNothing) operands.push_back(pool_.Complement(excluded_));
  if (!is_always_text) operands.push_back(pool_.Complement(NoStringText()));
  return pool_.Intersection(std::move(operands));
}

// What a reader might take for something else than a string: all that begins as a number, a list
// or an object, and the words of JSON and Python.
RegexId SchemaBuilder::NoStringText() {
  ByteSet spaces, begins = ByteSet::Range('0', '9');
  for (const char c : {' ', '\t', '\n', '\r'}) spaces.Add(static_cast<uint8_t>(c));
  for (const char c : {'-', '[', '(', '{'}) begins.Add(static_cast<uint8_t>(c));
  const RegexId space = pool_.Repeat(pool_.Bytes(spaces), 0, RegexPool::kUnlimited);
  std::vector<std::string> words{"null", "true", "false", "None", "True", "False"};
  return pool_.Concat(space, pool_.Union({pool_.Concat(pool_.Bytes(begins), RegexPool::kAll),
                                          pool_.Concat(pool_.Literals(words), space)}));
}

}  // namespace nereid::llm::grammar
