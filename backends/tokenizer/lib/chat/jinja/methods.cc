// The methods of texts, lists, dictionaries and loops. See builtins.h.
#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "backends/tokenizer/lib/chat/jinja/builtins.h"
#include "backends/tokenizer/lib/chat/jinja/operators.h"
#include "backends/tokenizer/lib/chat/jinja/text_methods.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer::jinja {
namespace {

using Method = std::pair<std::string_view, FunctionObject::Body>;

Result<MarkedText> TextArgument(std::string_view method, const std::optional<Value>& argument) {
  if (argument.has_value() && argument->is_text()) return argument->AsText();
  return InvalidArgError(method, "(): expected a str, got ",
                         argument.has_value() ? argument->TypeName() : "nothing");
}

// A text, or nothing if the argument is missing or None.
Result<std::optional<MarkedText>> OptionalText(std::string_view method,
                                               const std::optional<Value>& argument) {
  if (!argument.has_value() || argument->is_none()) return std::optional<MarkedText>();
  NEREID_ASSIGN_OR_RETURN(MarkedText text, TextArgument(method, argument));
  return std::optional<MarkedText>(std::move(text));
}

Result<Value> ListOfTexts(Interpreter& interpreter, std::vector<MarkedText> texts,
                          ListForm form = ListForm::kList) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (MarkedText& text : texts) {
    NEREID_ASSIGN_OR_RETURN(Value value, interpreter.MakeText(std::move(text)));
    items.push_back(std::move(value));
  }
  return interpreter.MakeList(std::move(items), form);
}

template <Case kMode>
Result<Value> CaseMethod(Interpreter& interpreter, const Value& self, Arguments&) {
  return interpreter.MakeText(ChangeCase(self.AsText(), kMode));
}

template <bool (*kHolds)(std::string_view)>
Result<Value> PredicateMethod(Interpreter& interpreter, const Value& self, Arguments&) {
  NEREID_RETURN_IF_ERROR(interpreter.Charge(self.AsText().size()));
  return Value(kHolds(self.AsText().bytes()));
}

template <Side kSide>
Result<Value> StripMethod(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("strip", arguments, {"chars"}));
  NEREID_ASSIGN_OR_RETURN(const std::optional<MarkedText> chars, OptionalText("strip", bound[0]));
  return interpreter.MakeText(Strip(self.AsText(), chars, kSide));
}

template <bool kIsFromRight>
Result<Value> SplitMethod(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("split", arguments, {"sep", "maxsplit"}));
  NEREID_ASSIGN_OR_RETURN(const std::optional<MarkedText> separator,
                          OptionalText("split", bound[0]));
  NEREID_ASSIGN_OR_RETURN(const int64_t max_splits, IntegerOf("split", bound[1], -1));
  if (separator.has_value() && separator->empty()) return InvalidArgError("empty separator");
  // A part costs more than its bytes.
  NEREID_RETURN_IF_ERROR(interpreter.Charge(64 * self.AsText().size()));
  return ListOfTexts(interpreter, Split(self.AsText(), separator, max_splits, kIsFromRight));
}

Result<Value> SplitLinesMethod(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("splitlines", arguments, {"keepends"}));
  NEREID_RETURN_IF_ERROR(interpreter.Charge(64 * self.AsText().size()));
  return ListOfTexts(interpreter, SplitLines(self.AsText(), BoolOf(bound[0], false)));
}

Result<Value> ReplaceMethod(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("replace", arguments, {"old", "new", "count"}, 2));
  NEREID_ASSIGN_OR_RETURN(const MarkedText from, TextArgument("replace", bound[0]));
  NEREID_ASSIGN_OR_RETURN(const MarkedText to, TextArgument("replace", bound[1]));
  NEREID_ASSIGN_OR_RETURN(const int64_t count, IntegerOf("replace", bound[2], -1));
  const size_t max_bytes = interpreter.limits().max_output_bytes;
  std::optional<MarkedText> text = Replace(self.AsText(), from, to, count, max_bytes);
  if (!text.has_value()) {
    return InvalidArgError("replace(): the result exceeds the limit of ", max_bytes, " bytes");
  }
  return interpreter.MakeText(std::move(*text));
}

template <bool kIsPrefix>
Result<Value> AffixMethod(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const char* const name = kIsPrefix ? "startswith" : "endswith";
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind(name, arguments, {"affix"}, 1));
  std::vector<Value> affixes = {*bound[0]};
  if (bound[0]->is_list() && bound[0]->AsList().form() == ListForm::kTuple) {
    affixes = bound[0]->AsList().items();
  }
  const std::string_view text = self.AsText().bytes();
  for (const Value& affix : affixes) {
    NEREID_ASSIGN_OR_RETURN(const MarkedText part, TextArgument(name, affix));
    if (kIsPrefix ? text.starts_with(part.bytes()) : text.ends_with(part.bytes())) {
      return Value(true);
    }
  }
  return Value(false);
}

template <bool kIsPrefix>
Result<Value> RemoveAffixMethod(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("removeprefix", arguments, {"affix"}, 1));
  NEREID_ASSIGN_OR_RETURN(const MarkedText affix, TextArgument("removeprefix", bound[0]));
  const MarkedText& text = self.AsText();
  const std::string_view bytes = text.bytes();
  if (kIsPrefix && bytes.starts_with(affix.bytes())) {
    return interpreter.MakeText(text.Slice(affix.size(), text.size()));
  }
  if (!kIsPrefix && bytes.ends_with(affix.bytes())) {
    return interpreter.MakeText(text.Slice(0, text.size() - affix.size()));
  }
  return self;
}

enum class Search { kFind, kFindLast, kIndex, kIndexLast, kCount };

template <Search kSearch>
Result<Value> SearchMethod(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("find", arguments, {"sub", "start", "end"}, 1));
  NEREID_ASSIGN_OR_RETURN(const MarkedText part, TextArgument("find", bound[0]));
  const std::string& bytes = self.AsText().bytes();
  NEREID_RETURN_IF_ERROR(interpreter.Charge(2 * bytes.size()));
  const auto size = static_cast<int64_t>(CountChars(bytes));
  NEREID_ASSIGN_OR_RETURN(int64_t begin, IntegerOf("find", bound[1], 0));
  NEREID_ASSIGN_OR_RETURN(int64_t end, IntegerOf("find", bound[2], size));
  begin = std::clamp(begin < 0 ? begin + size : begin, int64_t{0}, size + 1);
  end = std::clamp(end < 0 ? end + size : end, int64_t{0}, size);
  std::string_view range;
  size_t offset = 0;
  size_t found = std::string_view::npos;
  int64_t count = 0;
  if (begin <= end) {
    offset = ByteOffset(bytes, static_cast<size_t>(begin));
    range = std::string_view(bytes).substr(offset,
                                           ByteOffset(bytes, static_cast<size_t>(end)) - offset);
    found = kSearch == Search::kFindLast || kSearch == Search::kIndexLast
                ? range.rfind(part.bytes())
                : range.find(part.bytes());
    if (kSearch == Search::kCount) {
      count = part.empty() ? end - begin + 1 : 0;
      for (size_t at = found; !part.empty() && at != std::string_view::npos; ++count) {
        at = range.find(part.bytes(), at + part.size());
      }
    }
  }
  if (kSearch == Search::kCount) return Value(count);
  if (found != std::string_view::npos) {
    return Value(
        static_cast<int64_t>(CountChars(std::string_view(bytes).substr(0, offset + found))));
  }
  if (kSearch == Search::kFind || kSearch == Search::kFindLast) return Value(int64_t{-1});
  return InvalidArgError("substring not found");
}

Result<Value> JoinMethod(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("join", arguments, {"iterable"}, 1));
  NEREID_ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Elements(*bound[0]));
  MarkedText text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_text()) {
      return InvalidArgError("sequence item ", i, ": expected str instance, ", items[i].TypeName(),
                             " found");
    }
    if (i > 0) text.Append(self.AsText());
    text.Append(items[i].AsText());
    if (text.size() > interpreter.limits().max_output_bytes) break;  // MakeText reports it
  }
  return interpreter.MakeText(std::move(text));
}

Result<size_t> WidthOf(Interpreter& interpreter, const std::optional<Value>& argument) {
  NEREID_ASSIGN_OR_RETURN(const int64_t width, IntegerOf("width", argument, 0));
  if (width > static_cast<int64_t>(interpreter.limits().max_output_bytes)) {
    return InvalidArgError("a width of ", width, " exceeds the limit of ",
                           interpreter.limits().max_output_bytes);
  }
  return static_cast<size_t>(std::max(width, int64_t{0}));
}

template <Side kSide>
Result<Value> JustifyMethod(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("center", arguments, {"width", "fillchar"}, 1));
  NEREID_ASSIGN_OR_RETURN(const size_t width, WidthOf(interpreter, bound[0]));
  const MarkedText fill = TextOf(bound[1], " ");
  if (CountChars(fill.bytes()) != 1) {
    return InvalidArgError("the fill character must be exactly one character long");
  }
  return interpreter.MakeText(Justify(self.AsText(), width, kSide, fill.bytes()));
}

Result<Value> ZfillMethod(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("zfill", arguments, {"width"}, 1));
  NEREID_ASSIGN_OR_RETURN(const size_t width, WidthOf(interpreter, bound[0]));
  const MarkedText& text = self.AsText();
  const bool has_sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  MarkedText out = text.Slice(0, has_sign ? 1 : 0);
  const size_t sign_width = has_sign ? 1 : 0;
  out.Append(Justify(text.Slice(sign_width, text.size()),
                     width > sign_width ? width - sign_width : 0, Side::kRight, "0"));
  return interpreter.MakeText(std::move(out));
}

template <bool kIsLast>
Result<Value> PartitionMethod(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("partition", arguments, {"sep"}, 1));
  NEREID_ASSIGN_OR_RETURN(const MarkedText separator, TextArgument("partition", bound[0]));
  if (separator.empty()) return InvalidArgError("empty separator");
  const MarkedText& text = self.AsText();
  const size_t at =
      kIsLast ? text.bytes().rfind(separator.bytes()) : text.bytes().find(separator.bytes());
  std::vector<MarkedText> parts(3);
  if (at == std::string::npos) {
    parts[kIsLast ? 2 : 0] = text;
  } else {
    parts[0] = text.Slice(0, at);
    parts[1] = text.Slice(at, at + separator.size());
    parts[2] = text.Slice(at + separator.size(), text.size());
  }
  return ListOfTexts(interpreter, std::move(parts), ListForm::kTuple);
}

// "{} {0} {name}".format(...), without format specifications.
Result<Value> FormatMethod(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const MarkedText& format = self.AsText();
  const std::string& bytes = format.bytes();
  MarkedText out;
  size_t next = 0;
  for (size_t at = 0; at < bytes.size();) {
    const char c = bytes[at];
    if ((c == '{' || c == '}') && at + 1 < bytes.size() && bytes[at + 1] == c) {
      out.AppendSlice(format, at, at + 1);
      at += 2;
      continue;
    }
    if (c == '}') return InvalidArgError("single '}' encountered in format string");
    if (c != '{') {
      out.AppendSlice(format, at, at + 1);
      ++at;
      continue;
    }
    const size_t close = bytes.find('}', at);
    if (close == std::string::npos) return InvalidArgError("expected '}' before end of string");
    const std::string field = bytes.substr(at + 1, close - at - 1);
    if (field.find_first_of(".[!:{") != std::string::npos) {
      return UnsupportedError("format(): the field '{", field, "}' is not supported");
    }
    const bool is_index = field.empty() || std::all_of(field.begin(), field.end(),
                                                       [](char d) { return d >= '0' && d <= '9'; });
    const Value* value = nullptr;
    if (is_index) {
      const size_t index = field.empty()      ? next++
                           : field.size() > 6 ? arguments.positional.size()
                                              : std::stoul(field);
      if (index < arguments.positional.size()) value = &arguments.positional[index];
    } else {
      for (const auto& [name, item] : arguments.named) {
        if (name == field) value = &item;
      }
    }
    if (value == nullptr) return InvalidArgError("format(): no argument for '{", field, "}'");
    out.Append(ToText(*value));
    if (out.size() > interpreter.limits().max_output_bytes) break;  // MakeText reports it
    at = close + 1;
  }
  return interpreter.MakeText(std::move(out));
}

Result<Value> DictItems(Interpreter& interpreter, const Value& self, Arguments&) {
  std::vector<Value> items;
  NEREID_RETURN_IF_ERROR(interpreter.Charge(256 * self.AsDict().size()));
  for (const auto& [key, value] : self.AsDict().items()) {
    items.emplace_back(List({key, value}, ListForm::kTuple));
  }
  return interpreter.MakeList(std::move(items));
}
Result<Value> DictKeys(Interpreter& interpreter, const Value& self, Arguments&) {
  NEREID_ASSIGN_OR_RETURN(std::vector<Value> keys, interpreter.Elements(self));
  return interpreter.MakeList(std::move(keys));
}
Result<Value> DictValues(Interpreter& interpreter, const Value& self, Arguments&) {
  std::vector<Value> values;
  for (const auto& [key, value] : self.AsDict().items()) values.push_back(value);
  return interpreter.MakeList(std::move(values));
}
Result<Value> DictGet(Interpreter&, const Value& self, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("get", arguments, {"key", "default"}, 1));
  if (!IsHashable(*bound[0]))
    return InvalidArgError("unhashable type: '", bound[0]->TypeName(), "'");
  const Value* const found = self.AsDict().Find(*bound[0]);
  return found != nullptr ? *found : bound[1].value_or(Value());
}

Result<Value> ReturnSelf(Interpreter&, const Value& self, Arguments&) {
  return self;
}

Result<Value> ListIndex(Interpreter&, const Value& self, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("index", arguments, {"value"}, 1));
  const std::vector<Value>& items = self.AsList().items();
  for (size_t i = 0; i < items.size(); ++i) {
    if (IsEqual(items[i], *bound[0])) return Value(static_cast<int64_t>(i));
  }
  return InvalidArgError("the value is not in list");
}
Result<Value> ListCount(Interpreter&, const Value& self, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("count", arguments, {"value"}, 1));
  const std::vector<Value>& items = self.AsList().items();
  return Value(static_cast<int64_t>(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return IsEqual(item, *bound[0]); })));
}

Result<Value> LoopCycle(Interpreter&, const Value& self, Arguments& arguments) {
  return static_cast<LoopObject&>(self.AsObject()).Cycle(arguments);
}
Result<Value> LoopChanged(Interpreter&, const Value& self, Arguments& arguments) {
  return static_cast<LoopObject&>(self.AsObject()).IsChanged(std::move(arguments));
}

constexpr Method kTextMethods[] = {
    {"capitalize", CaseMethod<Case::kCapitalize>},
    {"casefold", CaseMethod<Case::kLower>},
    {"center", JustifyMethod<Side::kBoth>},
    {"count", SearchMethod<Search::kCount>},
    {"endswith", AffixMethod<false>},
    {"find", SearchMethod<Search::kFind>},
    {"format", FormatMethod},
    {"index", SearchMethod<Search::kIndex>},
    {"isalnum", PredicateMethod<IsAlnumText>},
    {"isalpha", PredicateMethod<IsAlphaText>},
    {"isdecimal", PredicateMethod<IsDigitText>},
    {"isdigit", PredicateMethod<IsDigitText>},
    {"islower", PredicateMethod<IsLowerText>},
    {"isnumeric", PredicateMethod<IsDigitText>},
    {"isspace", PredicateMethod<IsSpaceText>},
    {"istitle", PredicateMethod<IsTitleText>},
    {"isupper", PredicateMethod<IsUpperText>},
    {"join", JoinMethod},
    {"ljust", JustifyMethod<Side::kLeft>},
    {"lower", CaseMethod<Case::kLower>},
    {"lstrip", StripMethod<Side::kLeft>},
    {"partition", PartitionMethod<false>},
    {"removeprefix", RemoveAffixMethod<true>},
    {"removesuffix", RemoveAffixMethod<false>},
    {"replace", ReplaceMethod},
    {"rfind", SearchMethod<Search::kFindLast>},
    {"rindex", SearchMethod<Search::kIndexLast>},
    {"rjust", JustifyMethod<Side::kRight>},
    {"rpartition", PartitionMethod<true>},
    {"rsplit", SplitMethod<true>},
    {"rstrip", StripMethod<Side::kRight>},
    {"split", SplitMethod<false>},
    {"splitlines", SplitLinesMethod},
    {"startswith", AffixMethod<true>},
    {"strip", StripMethod<Side::kBoth>},
    {"swapcase", CaseMethod<Case::kSwap>},
    {"title", CaseMethod<Case::kTitle>},
    {"upper", CaseMethod<Case::kUpper>},
    {"zfill", ZfillMethod},
};
constexpr Method kDictMethods[] = {
    {"copy", ReturnSelf}, {"get", DictGet},       {"items", DictItems},
    {"keys", DictKeys},   {"values", DictValues},
};
constexpr Method kListMethods[] = {
    {"copy", ReturnSelf}, {"count", ListCount}, {"index", ListIndex}};
constexpr Method kLoopMethods[] = {{"changed", LoopChanged}, {"cycle", LoopCycle}};

// Methods that change their object.
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};

template <size_t kSize>
std::optional<Value> FindIn(const Method (&methods)[kSize], std::string_view name,
                            const Value& self) {
  const auto found = std::find_if(std::begin(methods), std::end(methods),
                                  [&](const Method& method) { return method.first == name; });
  if (found == std::end(methods)) return std::nullopt;
  return Value(
      std::shared_ptr<Object>(std::make_shared<FunctionObject>(found->first, found->second, self)));
}

template <size_t kSize>
bool IsAmong(const std::string_view (&names)[kSize], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

Result<std::optional<Value>> FindMethod(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kText:
      return FindIn(kTextMethods, name, object);
    case Kind::kDict:
      if (IsAmong(kDictChanges, name)) {
        return std::optional<Value>(Value::Undefined(
            StrCat("access to attribute '", name, "' of 'dict' object is unsafe.")));
      }
      return FindIn(kDictMethods, name, object);
    case Kind::kList:
      if (object.AsList().form() == ListForm::kIterator) return std::optional<Value>();
      if (object.AsList().form() == ListForm::kList && IsAmong(kListChanges, name)) {
        return std::optional<Value>(Value::Undefined(
            StrCat("access to attribute '", name, "' of 'list' object is unsafe.")));
      }
      return FindIn(kListMethods, name, object);
    case Kind::kObject: {
      if (std::optional<Value> attribute = object.AsObject().Attribute(name)) return attribute;
      if (dynamic_cast<LoopObject*>(&object.AsObject()) != nullptr) {
        return FindIn(kLoopMethods, name, object);
      }
      return std::optional<Value>();
    }
    default:
      return std::optional<Value>();
  }
}

}  // namespace nereid::tokenizer::jinja
