// Filters of lists, dictionaries and of any value. See builtins.h.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/tokenizer/lib/chat/jinja/builtins.h"
#include "backends/tokenizer/lib/chat/jinja/operators.h"
#include "backends/tokenizer/lib/chat/jinja/text_methods.h"

namespace nereid::tokenizer::jinja {
namespace {

// --- Lists ---

// What map(attribute=...), sort and others look up in each element: "a.b.0".
Result<Value> PathOf(Interpreter& interpreter, Value value, const Value& path) {
  if (!path.is_text()) return interpreter.Element(value, path);
  for (const MarkedText& part :
       Split(path.AsText(), MarkedText(std::string(".")), /*max_splits=*/-1, false)) {
    const bool is_index = IsDigitText(part.bytes()) && part.size() < 10;
    NEREID_ASSIGN_OR_RETURN(
        value, interpreter.Element(
                   value, is_index ? Value(int64_t{std::stoll(part.bytes())}) : Value(part)));
  }
  return value;
}

// What elements are compared by: an attribute or themselves, texts without regard to case unless
// `is_case_sensitive`.
struct KeyRule {
  std::optional<Value> attribute;
  bool is_case_sensitive = false;
};

Result<Value> KeyOf(Interpreter& interpreter, const Value& element, const KeyRule& rule) {
  Value key = element;
  if (rule.attribute.has_value() && !rule.attribute->is_none()) {
    NEREID_ASSIGN_OR_RETURN(key, PathOf(interpreter, element, *rule.attribute));
  }
  if (!rule.is_case_sensitive && key.is_text()) {
    return interpreter.MakeText(ChangeCase(key.AsText(), Case::kLower));
  }
  return key;
}

struct Keyed {
  Value key, value;
};

Result<std::vector<Keyed>> KeyAll(Interpreter& interpreter, const Value& input,
                                  const KeyRule& rule) {
  NEREID_ASSIGN_OR_RETURN(std::vector<Value> elements, interpreter.Elements(input));
  std::vector<Keyed> keyed;
  keyed.reserve(elements.size());
  for (Value& element : elements) {
    NEREID_ASSIGN_OR_RETURN(Value key, KeyOf(interpreter, element, rule));
    keyed.push_back({std::move(key), std::move(element)});
  }
  return keyed;
}

// A stable sort. A comparison of values without an order is an error.
Status SortByKey(Interpreter& interpreter, std::vector<Keyed>& keyed, bool is_reverse) {
  Status error;
  size_t num_comparisons = 0;
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    if (!error.ok()) return false;
    ++num_comparisons;
    if (IsEqual(a.key, b.key)) return false;  // also of values without an order
    const Result<bool> is_less = is_reverse ? IsLess(b.key, a.key) : IsLess(a.key, b.key);
    if (!is_less.ok()) error = is_less.status();
    return is_less.ok() && *is_less;
  });
  NEREID_RETURN_IF_ERROR(interpreter.Charge(64 * num_comparisons));
  return error;
}

Result<Value> ListOfKeyed(Interpreter& interpreter, std::vector<Keyed> keyed) {
  std::vector<Value> values;
  values.reserve(keyed.size());
  for (Keyed& item : keyed) values.push_back(std::move(item.value));
  return interpreter.MakeList(std::move(values));
}

Result<Value> Sort(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  KeyRule rule{bound[2], BoolOf(bound[1], false)};
  if (rule.attribute.has_value() && rule.attribute->is_text() &&
      rule.attribute->AsText().bytes().find(',') != std::string::npos) {
    return UnsupportedError("sort: several attributes are not supported");
  }
  NEREID_ASSIGN_OR_RETURN(std::vector<Keyed> keyed, KeyAll(interpreter, input, rule));
  NEREID_RETURN_IF_ERROR(SortByKey(interpreter, keyed, BoolOf(bound[0], false)));
  return ListOfKeyed(interpreter, std::move(keyed));
}

Result<Value> DictSort(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  const std::string by = TextOf(bound[1], "key").bytes();
  if (by != "key" && by != "value") {
    return InvalidArgError("dictsort: you can only sort by either \"key\" or \"value\"");
  }
  if (!input.is_dict()) return InvalidArgError("dictsort: expected a dict, got ", input.TypeName());
  const KeyRule rule{std::nullopt, BoolOf(bound[0], false)};
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : input.AsDict().items()) {
    NEREID_ASSIGN_OR_RETURN(Value sort_key, KeyOf(interpreter, by == "key" ? key : value, rule));
    keyed.push_back({std::move(sort_key), Value(List({key, value}, ListForm::kTuple))});
  }
  NEREID_RETURN_IF_ERROR(SortByKey(interpreter, keyed, BoolOf(bound[2], false)));
  return ListOfKeyed(interpreter, std::move(keyed));
}

Result<Value> Unique(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("unique", arguments, {"case_sensitive", "attribute"}));
  NEREID_ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                          KeyAll(interpreter, input, KeyRule{bound[1], BoolOf(bound[0], false)}));
  Dict seen;
  std::vector<Value> unique;
  for (Keyed& item : keyed) {
    if (!IsHashable(item.key))
      return InvalidArgError("unhashable type: '", item.key.TypeName(), "'");
    NEREID_RETURN_IF_ERROR(interpreter.Charge(item.key.is_text() ? 64 : 64 * (seen.size() + 1)));
    if (seen.Find(item.key) != nullptr) continue;
    seen.Set(std::move(item.key), Value());
    unique.push_back(std::move(item.value));
  }
  return interpreter.MakeList(std::move(unique), ListForm::kIterator);
}

template <bool kIsMax>
Result<Value> Extreme(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind(kIsMax ? "max" : "min", arguments, {"case_sensitive", "attribute"}));
  NEREID_ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                          KeyAll(interpreter, input, KeyRule{bound[1], BoolOf(bound[0], false)}));
  if (keyed.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    NEREID_ASSIGN_OR_RETURN(const bool is_better, kIsMax ? IsLess(keyed[best].key, keyed[i].key)
                                                         : IsLess(keyed[i].key, keyed[best].key));
    if (is_better) best = i;
  }
  return std::move(keyed[best].value);
}

Result<Value> GroupBy(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      Bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1));
  const KeyRule rule{bound[0], BoolOf(bound[2], false)};
  NEREID_ASSIGN_OR_RETURN(std::vector<Keyed> keyed, KeyAll(interpreter, input, rule));
  if (bound[1].has_value()) {
    for (Keyed& item : keyed) {
      if (item.key.is_undefined()) item.key = *bound[1];
    }
  }
  NEREID_RETURN_IF_ERROR(SortByKey(interpreter, keyed, /*is_reverse=*/false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin;
    std::vector<Value> members;
    for (; end < keyed.size() && IsEqual(keyed[end].key, keyed[begin].key); ++end) {
      members.push_back(keyed[end].value);
    }
    // The key as the first member has it, not in lower case.
    NEREID_ASSIGN_OR_RETURN(Value key, PathOf(interpreter, members.front(), *bound[0]));
    if (key.is_undefined() && bound[1].has_value()) key = *bound[1];
    NEREID_ASSIGN_OR_RETURN(Value list, interpreter.MakeList(std::move(members)));
    NEREID_ASSIGN_OR_RETURN(
        Value group, interpreter.MakeList({std::move(key), std::move(list)}, ListForm::kTuple));
    groups.push_back(std::move(group));
    begin = end;
  }
  return interpreter.MakeList(std::move(groups));
}

Result<Value> First(Interpreter& interpreter, const Value& input, Arguments&) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<Value> elements, interpreter.Elements(input));
  if (elements.empty()) return Value::Undefined("No first item, sequence was empty.");
  return elements.front();
}
Result<Value> Last(Interpreter& interpreter, const Value& input, Arguments&) {
  if (input.is_list() && input.AsList().form() == ListForm::kIterator) {
    return InvalidArgError("'generator' object is not reversible");
  }
  NEREID_ASSIGN_OR_RETURN(const std::vector<Value> elements, interpreter.Elements(input));
  if (elements.empty()) return Value::Undefined("No last item, sequence was empty.");
  return elements.back();
}

Result<Value> Length(Interpreter& interpreter, const Value& input, Arguments&) {
  switch (input.kind()) {
    case Kind::kUndefined:
      return Value(int64_t{0});
    case Kind::kText:
      NEREID_RETURN_IF_ERROR(interpreter.Charge(input.AsText().size()));
      return Value(static_cast<int64_t>(CountChars(input.AsText().bytes())));
    case Kind::kList:
      if (input.AsList().form() == ListForm::kIterator) break;
      return Value(static_cast<int64_t>(input.AsList().size()));
    case Kind::kDict:
      return Value(static_cast<int64_t>(input.AsDict().size()));
    default:
      break;
  }
  return InvalidArgError("object of type '", input.TypeName(), "' has no len()");
}

Result<Value> ListFilter(Interpreter& interpreter, const Value& input, Arguments&) {
  NEREID_ASSIGN_OR_RETURN(std::vector<Value> elements, interpreter.Elements(input));
  return interpreter.MakeList(std::move(elements));
}

Result<Value> Items(Interpreter& interpreter, const Value& input, Arguments&) {
  if (input.is_undefined()) return interpreter.MakeList({}, ListForm::kIterator);
  if (!input.is_dict()) return InvalidArgError("Can only get item pairs from a mapping.");
  std::vector<Value> items;
  NEREID_RETURN_IF_ERROR(interpreter.Charge(256 * input.AsDict().size()));
  for (const auto& [key, value] : input.AsDict().items()) {
    items.emplace_back(List({key, value}, ListForm::kTuple));
  }
  return interpreter.MakeList(std::move(items), ListForm::kIterator);
}

Result<Value> Join(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("join", arguments, {"d", "attribute"}));
  const MarkedText separator = TextOf(bound[0], "");
  NEREID_ASSIGN_OR_RETURN(const std::vector<Value> elements, interpreter.Elements(input));
  MarkedText text;
  for (size_t i = 0; i < elements.size(); ++i) {
    Value element = elements[i];
    if (bound[1].has_value() && !bound[1]->is_none()) {
      NEREID_ASSIGN_OR_RETURN(element, PathOf(interpreter, std::move(element), *bound[1]));
    }
    if (i > 0) text.Append(separator);
    text.Append(ToText(element));
    if (text.size() > interpreter.limits().max_output_bytes) break;  // MakeText reports it
  }
  return interpreter.MakeText(std::move(text));
}

Result<Value> Reverse(Interpreter& interpreter, const Value& input, Arguments&) {
  if (input.is_text()) return Slice(interpreter, input, std::nullopt, std::nullopt, -1);
  NEREID_ASSIGN_OR_RETURN(std::vector<Value> elements, interpreter.Elements(input));
  std::reverse(elements.begin(), elements.end());
  return interpreter.MakeList(std::move(elements), ListForm::kIterator);
}

Result<Value> Sum(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("sum", arguments, {"attribute", "start"}));
  NEREID_ASSIGN_OR_RETURN(const std::vector<Value> elements, interpreter.Elements(input));
  Value sum = bound[1].value_or(Value(int64_t{0}));
  for (Value element : elements) {
    if (bound[0].has_value() && !bound[0]->is_none()) {
      NEREID_ASSIGN_OR_RETURN(element, PathOf(interpreter, std::move(element), *bound[0]));
    }
    NEREID_ASSIGN_OR_RETURN(sum, Binary(interpreter, "+", sum, element));
  }
  return sum;
}

Result<Value> Batch(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("batch", arguments, {"linecount", "fill_with"}, 1));
  NEREID_ASSIGN_OR_RETURN(const int64_t size, IntegerOf("batch", bound[0], 1));
  if (size < 1 || size > 1'000'000) return InvalidArgError("batch: a size of ", size);
  NEREID_ASSIGN_OR_RETURN(const std::vector<Value> elements, interpreter.Elements(input));
  std::vector<Value> batches;
  for (size_t at = 0; at < elements.size(); at += static_cast<size_t>(size)) {
    const size_t end = std::min(at + static_cast<size_t>(size), elements.size());
    std::vector<Value> batch(elements.begin() + static_cast<ptrdiff_t>(at),
                             elements.begin() + static_cast<ptrdiff_t>(end));
    if (bound[1].has_value() && !bound[1]->is_none()) {
      NEREID_RETURN_IF_ERROR(interpreter.Charge(64 * static_cast<size_t>(size)));
      batch.resize(static_cast<size_t>(size), *bound[1]);
    }
    NEREID_ASSIGN_OR_RETURN(Value list, interpreter.MakeList(std::move(batch)));
    batches.push_back(std::move(list));
  }
  return interpreter.MakeList(std::move(batches), ListForm::kIterator);
}

Result<Value> SliceFilter(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("slice", arguments, {"slices", "fill_with"}, 1));
  NEREID_ASSIGN_OR_RETURN(const int64_t count, IntegerOf("slice", bound[0], 1));
  if (count < 1 || count > 1'000'000) return InvalidArgError("slice: a count of ", count);
  NEREID_ASSIGN_OR_RETURN(const std::vector<Value> elements, interpreter.Elements(input));
  const size_t num_slices = static_cast<size_t>(count);
  const size_t size = elements.size() / num_slices, num_longer = elements.size() % num_slices;
  std::vector<Value> slices;
  auto at = elements.begin();
  for (size_t i = 0; i < num_slices; ++i) {
    const auto end = at + static_cast<ptrdiff_t>(size + (i < num_longer ? 1 : 0));
    std::vector<Value> slice(at, end);
    if (i >= num_longer && bound[1].has_value() && !bound[1]->is_none()) {
      slice.push_back(*bound[1]);
    }
    at = end;
    NEREID_ASSIGN_OR_RETURN(Value list, interpreter.MakeList(std::move(slice)));
    slices.push_back(std::move(list));
  }
  return interpreter.MakeList(std::move(slices), ListForm::kIterator);
}

// The name that is the first argument of map or select, which it removes.
Result<std::string> TakeName(std::string_view filter, Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.positional[0].is_text()) {
    return InvalidArgError(filter, ": expected a name as the first argument");
  }
  std::string name = arguments.positional[0].AsText().bytes();
  arguments.positional.erase(arguments.positional.begin());
  return name;
}

Result<Value> Map(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<Value> elements, interpreter.Elements(input));
  std::vector<Value> mapped;
  if (arguments.positional.empty() && !arguments.named.empty()) {
    NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                            Bind("map", arguments, {"attribute", "default"}, 1));
    for (const Value& element : elements) {
      NEREID_ASSIGN_OR_RETURN(Value value, PathOf(interpreter, element, *bound[0]));
      if (value.is_undefined() && bound[1].has_value() && !bound[1]->is_none()) value = *bound[1];
      mapped.push_back(std::move(value));
    }
  } else {
    NEREID_ASSIGN_OR_RETURN(const std::string name, TakeName("map", arguments));
    for (const Value& element : elements) {
      NEREID_ASSIGN_OR_RETURN(Value value, interpreter.ApplyFilter(name, element, arguments));
      mapped.push_back(std::move(value));
    }
  }
  return interpreter.MakeList(std::move(mapped), ListForm::kIterator);
}

// select, reject, selectattr and rejectattr: keeps the elements of which a test, or an attribute,
// or the element itself is true or not.
template <bool kKeepsTrue, bool kHasAttribute>
Result<Value> Select(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<Value> elements, interpreter.Elements(input));
  std::optional<Value> attribute;
  if (kHasAttribute) {
    if (arguments.positional.empty()) {
      return InvalidArgError("Missing parameter for attribute name");
    }
    attribute = arguments.positional[0];
    arguments.positional.erase(arguments.positional.begin());
  }
  std::optional<std::string> test;
  if (!arguments.positional.empty()) {
    NEREID_ASSIGN_OR_RETURN(test, TakeName("select", arguments));
  }
  std::vector<Value> kept;
  for (const Value& element : elements) {
    Value value = element;
    if (attribute.has_value()) {
      NEREID_ASSIGN_OR_RETURN(value, PathOf(interpreter, element, *attribute));
    }
    bool holds = false;
    if (test.has_value()) {
      NEREID_ASSIGN_OR_RETURN(holds, interpreter.ApplyTest(*test, value, arguments));
    } else {
      holds = IsTrue(value);
    }
    if (holds == kKeepsTrue) kept.push_back(element);
  }
  return interpreter.MakeList(std::move(kept), ListForm::kIterator);
}

// --- Any value ---

Result<Value> Default(Interpreter&, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("default", arguments, {"default_value", "boolean"}));
  const bool is_replaced = input.is_undefined() || (BoolOf(bound[1], false) && !IsTrue(input));
  return is_replaced ? bound[0].value_or(Value("")) : input;
}

Result<Value> Attr(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("attr", arguments, {"name"}, 1));
  const std::string name = ToText(*bound[0]).bytes();
  // Keys of a dictionary are not attributes.
  if (input.is_dict()) {
    NEREID_ASSIGN_OR_RETURN(std::optional<Value> method, FindMethod(input, name));
    return method.value_or(Value::Undefined(StrCat("'dict object' has no attribute '", name, "'")));
  }
  return interpreter.Attribute(input, name);
}

constexpr std::pair<std::string_view, FilterFunction> kListFilters[] = {
    {"attr", Attr},
    {"batch", Batch},
    {"count", Length},
    {"d", Default},
    {"default", Default},
    {"dictsort", DictSort},
    {"first", First},
    {"groupby", GroupBy},
    {"items", Items},
    {"join", Join},
    {"last", Last},
    {"length", Length},
    {"list", ListFilter},
    {"map", Map},
    {"max", Extreme<true>},
    {"min", Extreme<false>},
    {"reject", Select<false, false>},
    {"rejectattr", Select<false, true>},
    {"reverse", Reverse},
    {"select", Select<true, false>},
    {"selectattr", Select<true, true>},
    {"slice", SliceFilter},
    {"sort", Sort},
    {"sum", Sum},
    {"unique", Unique},
};

}  // namespace

FilterFunction FindFilter(std::string_view name) {
  const auto found = std::find_if(std::begin(kListFilters), std::end(kListFilters),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == std::end(kListFilters) ? FindTextFilter(name) : found->second;
}

}  // namespace nereid::tokenizer::jinja
