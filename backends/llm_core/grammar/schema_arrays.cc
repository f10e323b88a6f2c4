// See schema_builder.h: arrays.
#include <algorithm>

#include "backends/llm_core/grammar/json_text.h"
#include "backends/llm_core/grammar/regex_syntax.h"
#include "backends/llm_core/grammar/schema_builder.h"

namespace nereid::llm::grammar {
namespace {

constexpr size_t kMaxCounts = 4;             // contains, in one array
constexpr size_t kMaxDifferentItems = 1000;  // values of an item, to count as few

}  // namespace

Status SchemaBuilder::AddArray(RuleId rule, const ArrayRules& rules) {
  uint64_t max = rules.max_items.value_or(kMaxCount + 1);
  if (max < rules.min_items) return Status::Ok();
  DifferentItems different;
  if (rules.unique_schema != nullptr && max > 1) {
    NEREID_ASSIGN_OR_RETURN(different, ReadDifferentItems(rules));
    max = std::min(max, different.max_items);
    if (max < rules.min_items) return Status::Ok();
  }
  NEREID_ASSIGN_OR_RETURN(const uint64_t num_positions, NumPositions(rules, max));
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
    if (!different.terminals.empty()) {
      const size_t position = std::min<uint64_t>(state[0], different.terminals.size() - 1);
      graph_.Read(item, different.terminals[position],
                  state_of({std::min(state[0] + 1, num_positions)}));
      continue;
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

Result<uint64_t> SchemaBuilder::NumPositions(const ArrayRules& rules, uint64_t max_items) {
  if (rules.counts.size() > kMaxCounts) {
    return UnsupportedError("contains: more than ", kMaxCounts, " of them cannot be enforced");
  }
  const bool has_max = rules.max_items || max_items <= kMaxCount;
  uint64_t num_positions =  // at least one, since the first item has no comma
      std::max({uint64_t{rules.NumFirst()}, rules.min_items, has_max ? max_items : 0, uint64_t{1}});
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
  return num_positions;
}

Result<bool> SchemaBuilder::CountItem(const ArrayRules& rules, uint32_t counted,
                                      const ItemState& state, ItemState& next,
                                      SchemaList& schemas) {
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

// Items must differ in the same way as names of an object: each one excludes the texts of those
// before it. For this, all texts of a value must be known from one of them.
Result<SchemaBuilder::DifferentItems> SchemaBuilder::ReadDifferentItems(const ArrayRules& rules) {
  const std::string path = document_.PathOf(rules.unique_schema) + ": uniqueItems: ";
  if (!rules.counts.empty()) {
    return UnsupportedError(path, "items that must differ cannot be enforced beside contains");
  }
  if (!notation_.HasJsonStrings() || notation_.has_python_words) {
    return UnsupportedError(path, "items that must differ cannot be enforced in these calls");
  }
  DifferentItems items;
  items.max_items = rules.max_items.value_or(kMaxCount + 1);
  std::optional<std::set<std::string>> same;  // the values of all positions, if they are the same
  const size_t num_first = rules.NumFirst();
  for (size_t i = 0; i <= num_first && i < items.max_items; ++i) {
    NEREID_ASSIGN_OR_RETURN(const ItemValues item, ReadItemValues(rules.SchemasOf(i), path));
    if (i == 0 && !item.are_many) same = item.values;
    if (item.are_many || same != item.values) same.reset();
    const uint64_t num_values = item.values.size();
    const uint64_t last = i < num_first ? i : items.max_items - 1;  // that the position stands for
    // A comma must not promise an item for which no value is left.
    if (!item.are_many && num_values <= last) {
      if (num_values > 0 && !same) {
        return UnsupportedError(path, "items that must differ cannot be enforced: some have few ",
                                "values, and others have other ones");
      }
      items.max_items = num_values > 0 ? num_values : i;
    }
    items.terminals.push_back(graph_.AddUniqueName(space_, item.regex));
  }
  return items;
}

Result<SchemaBuilder::ItemValues> SchemaBuilder::ReadItemValues(const SchemaList& schemas,
                                                                const std::string& path) {
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const Shapes> shapes, document_.Expand(schemas));
  ItemValues item;
  for (const Shape& shape : *shapes) {
    if (!shape.refusal.empty()) return Status(StatusCode::kUnsupported, shape.refusal);
    const Status status = AddItemValues(shape, item);
    if (status.code() == StatusCode::kUnsupported && !status.message().starts_with('#')) {
      return UnsupportedError(path,
                              "items that must differ cannot be enforced: ", status.message());
    }
    NEREID_RETURN_IF_ERROR(status);
    item.are_many |= item.values.size() > kMaxDifferentItems;
  }
  return item;
}

Status SchemaBuilder::AddItemValues(const Shape& shape, ItemValues& item) {
  RegexId regex = RegexPool::kNothing;
  if (shape.type == JsonType::kArray || shape.type == JsonType::kObject) {
    return UnsupportedError("they may be arrays or objects");
  }
  if (shape.values) {
    NEREID_ASSIGN_OR_RETURN(const std::vector<const Json*> values, FittingValues(shape));
    for (const Json* value : values) {
      const std::optional<Decimal> number = Decimal::Of(*value);
      item.values.insert(number ? number->Text() : value->dump());
    }
    NEREID_ASSIGN_OR_RETURN(regex, Values(shape));
  } else if (shape.type == JsonType::kNumber) {
    NEREID_ASSIGN_OR_RETURN(regex, ReadItemNumbers(shape, item));
  } else if (shape.type == JsonType::kString) {
    NEREID_ASSIGN_OR_RETURN(const RegexId plain, document_.StringRegex(pool_, shape.string, false));
    std::vector<std::string> texts;
    item.are_many |= pool_.IsAlive(plain) && pool_.IsInfinite(plain, kMaxDifferentItems, texts);
    for (const std::string& text : texts) item.values.insert(Json(text).dump());
    NEREID_ASSIGN_OR_RETURN(regex, Scalar(shape));
    regex = pool_.Intersection({any_name_, regex});
  } else {
    if (shape.type == JsonType::kNull) {
      item.values.insert("null");
    } else {
      item.values.insert({"true", "false"});
    }
    NEREID_ASSIGN_OR_RETURN(regex, Scalar(shape));
  }
  item.regex = pool_.Union({item.regex, regex});
  return Status::Ok();
}

Result<RegexId> SchemaBuilder::ReadItemNumbers(const Shape& shape, ItemValues& item) {
  const NumberRange& range = shape.number;
  const RegexId regex = range.Regex(pool_);
  if (range.is_integer) {
    std::vector<std::string> texts;
    item.are_many |= pool_.IsAlive(regex) && pool_.IsInfinite(regex, kMaxDifferentItems, texts);
    for (const std::string& text : texts) item.values.insert(text == "-0" ? "0" : text);
    return regex;
  }
  if (!range.multiples.empty() || !range.no_multiples.empty()) {
    return UnsupportedError("they may be multiples that are no integers");
  }
  for (const NumberRange::Bound& min : range.min) {
    for (const NumberRange::Bound& max : range.max) {
      if (!(min.value < max.value)) return UnsupportedError("they may have too few values");
    }
  }
  // Without exponents, equal numbers differ only in zeros at the end; readers with doubles tell
  // numbers of 15 digits apart.
  item.are_many = true;
  ByteSet digits = ByteSet::Range('0', '9');
  digits.Add('.'), digits.Add('-');
  return pool_.Intersection({regex, pool_.Repeat(pool_.Bytes(digits), 1, 15)});
}

}  // namespace nereid::llm::grammar
