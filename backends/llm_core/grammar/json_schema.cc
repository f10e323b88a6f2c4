// See json_schema.h.
#include "backends/llm_core/grammar/json_schema.h"

#include <algorithm>

#include "backends/llm_core/grammar/json_text.h"
#include "backends/llm_core/grammar/schema_builder.h"

namespace nereid::llm::grammar {
namespace {

bool IsFree(const Shape& shape) {
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
bool IsPlain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c >= 0x20 && c < 0x7F && c != '"' && c != '\\' && c != '/';
  });
}

}  // namespace

SchemaBuilder::SchemaBuilder(SchemaDocument& document, int max_whitespace,
                             const SchemaNotation& notation, SyntaxGraph& graph)
    : document_(document), graph_(graph), pool_(graph.pool()), notation_(notation) {
  ByteSet spaces;
  for (const char c : {' ', '\t', '\n', '\r'}) spaces.Add(static_cast<uint8_t>(c));
  space_ = pool_.Repeat(pool_.Bytes(spaces), 0, max_whitespace);
  for (const char c : {'{', '}', '[', ']', ',', ':'}) marks_[c] = Token(pool_.Literal({&c, 1}));
  std::vector<RegexId> excluded;
  for (const std::string& text : notation.excluded) {
    excluded.push_back(pool_.Concat({RegexPool::kAll, pool_.Literal(text), RegexPool::kAll}));
  }
  excluded_ = pool_.Union(std::move(excluded));
  const RegexId any = SpellSet(pool_, CodePointSet::All(), Spelling::kJson);
  any_name_ = QuoteString(pool_.Repeat(any, 0, RegexPool::kUnlimited));
  CodePointSet first = CodePointSet::Of('A', 'Z').IgnoringCase().Union(CodePointSet::Of('_', '_'));
  if (!notation.has_identifiers) first = first.Union(CodePointSet::Of(0xA1, 0x10FFFF));
  CodePointSet further = first.Union(CodePointSet::Of('0', '9'));
  if (!notation.has_identifiers) further = further.Union(CodePointSet::Of('-', '.'));
  bare_name_ = pool_.Concat(SpellSet(pool_, first, Spelling::kUtf8),
                            pool_.Repeat(SpellSet(pool_, further, Spelling::kUtf8), 0, 63));
}

Result<RuleId> SchemaBuilder::Build() {
  const RuleId root = graph_.AddRule();
  const StateId end = graph_.AddState(root);
  graph_.Accept(end);
  if (notation_.members) {
    NEREID_RETURN_IF_ERROR(BuildMembers(root));
  } else {
    NEREID_RETURN_IF_ERROR(AddValue(graph_.rule(root).start, end, {&document_.root()}));
  }
  NEREID_RETURN_IF_ERROR(BuildPending());
  return root;
}

Status SchemaBuilder::BuildPending() {
  while (!pending_.empty() && !graph_.exhausted()) {
    const Pending next = std::move(pending_.front());
    pending_.pop_front();
    for (const Shape& shape : *next.shapes) {
      if (shape.values) continue;  // part of the terminal
      Status status;
      if (shape.type == JsonType::kArray) status = AddArray(next.rule, shape.array);
      if (shape.type == JsonType::kObject)
        status = AddObject(next.rule, shape.object, MarksOfObject());
      // Errors about subschemas name their own path.
      if (!status.ok() && !status.message().starts_with('#')) {
        return std::move(status).WithContext(PathOf(next.schemas));
      }
      NEREID_RETURN_IF_ERROR(std::move(status));
    }
  }
  return Status::Ok();
}

Result<SchemaBuilder::Value> SchemaBuilder::ValueOf(const SchemaList& schemas) {
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

Status SchemaBuilder::AddValue(StateId from, StateId to, const SchemaList& schemas) {
  NEREID_ASSIGN_OR_RETURN(const Value value, ValueOf(schemas));
  Connect(from, value, to);
  return Status::Ok();
}

void SchemaBuilder::Connect(StateId from, const Value& value, StateId to) {
  if (value.terminal) graph_.Read(from, *value.terminal, to);
  if (value.rule) graph_.Call(from, *value.rule, to);
}

Result<RegexId> SchemaBuilder::Scalar(const Shape& shape) {
  switch (shape.type) {
    case JsonType::kNull:
      return SpellWord("null");
    case JsonType::kBoolean:
      return pool_.Union({SpellWord("true"), SpellWord("false")});
    case JsonType::kNumber:
      return LimitNumber(shape.number.Regex(pool_));
    default: {
      const bool is_json = notation_.HasJsonStrings();
      if (shape.string.IsFree() && is_json && excluded_ == RegexPool::kNothing) {
        return AnyJsonString(pool_, Spelling::kJsonAnyEscape);
      }
      Result<RegexId> inside = document_.StringRegex(pool_, shape.string, is_json);
      if (!inside.ok()) return std::move(inside).status().WithContext("pattern");
      return QuoteString(*inside);
    }
  }
}

Result<std::vector<const Json*>> SchemaBuilder::FittingValues(const Shape& shape) {
  Shape rules = shape;
  rules.values.reset();
  const bool is_free = IsFree(rules);
  std::vector<const Json*> fitting;
  for (const Json* value : *shape.values) {
    NEREID_RETURN_IF_ERROR(document_.Spend(1));
    if (!is_free) {
      NEREID_ASSIGN_OR_RETURN(const bool fits, document_.Fits(*value, rules));
      if (!fits) continue;
    }
    fitting.push_back(value);
  }
  return fitting;
}

Result<RegexId> SchemaBuilder::Values(const Shape& shape) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<const Json*> values, FittingValues(shape));
  std::vector<RegexId> parts;
  std::vector<std::string> plain;  // strings with one spelling
  for (const Json* value : values) {
    if (value->is_string() && IsPlain(value->get_ref<const std::string&>()) &&
        notation_.HasJsonStrings() && excluded_ == RegexPool::kNothing) {
      plain.push_back('"' + value->get_ref<const std::string&>() + '"');
      continue;
    }
    NEREID_ASSIGN_OR_RETURN(const RegexId part, Spell(*value));
    parts.push_back(part);
  }
  parts.push_back(pool_.Literals(plain));
  return pool_.Union(std::move(parts));
}

Result<RegexId> SchemaBuilder::Spell(const Json& value) {
  if (value.is_string()) return SpellString(value.get_ref<const std::string&>());
  if (value.is_number()) {
    const std::optional<Decimal> number = Decimal::Of(value);
    if (!number || (value.is_number_float() && number->integer.size() > 15)) {
      return UnsupportedError("#: a number of the schema is too large");
    }
    return LimitNumber(SpellNumber(pool_, *number));
  }
  if (!value.is_structured()) return SpellWord(value.dump());
  std::vector<RegexId> parts;
  const bool is_object = value.is_object();
  for (auto it = value.begin(); it != value.end(); ++it) {
    if (!parts.empty()) parts.push_back(pool_.Concat(space_, pool_.Literal(",")));
    if (is_object) {
      NEREID_ASSIGN_OR_RETURN(const RegexId name, SpellName(it.key(), notation_.has_bare_names));
      parts.push_back(pool_.Concat(space_, name));
      parts.push_back(pool_.Concat(space_, pool_.Literal(":")));
    }
    NEREID_ASSIGN_OR_RETURN(const RegexId each, Spell(*it));
    parts.push_back(pool_.Concat(space_, each));
  }
  RegexId all = pool_.Concat(space_, pool_.Literal(is_object ? "}" : "]"));
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) all = pool_.Concat(*part, all);
  return pool_.Concat(pool_.Literal(is_object ? "{" : "["), all);
}

Result<RuleId> AddJsonSchema(std::string_view schema, int max_whitespace, SyntaxGraph& graph,
                             const SchemaNotation& notation) {
  NEREID_ASSIGN_OR_RETURN(const std::unique_ptr<SchemaDocument> document,
                          SchemaDocument::Parse(schema));
  return SchemaBuilder(*document, max_whitespace, notation, graph).Build();
}

}  // namespace nereid::llm::grammar
