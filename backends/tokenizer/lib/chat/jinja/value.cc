// See value.h.
#include "backends/tokenizer/lib/chat/jinja/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "backends/tokenizer/lib/text/unicode.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer::jinja {
namespace {

int DepthOf(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

// What Python's repr() writes as it is. The rest is escaped.
bool IsPrintable(char32_t c) {
  if (c < 0x20 || c == 0x7F) return false;
  if (c < 0x7F) return true;
  const CharClass char_class = UnicodeTables::Get().ClassOf(c);
  return char_class != CharClass::kOther && char_class != CharClass::kSpace &&
         char_class != CharClass::kNumeric17;
}

std::string HexEscape(char32_t c) {
  constexpr char kDigits[] = "0123456789abcdef";
  const int num_digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  std::string out = num_digits == 2 ? "\\x" : num_digits == 4 ? "\\u" : "\\U";
  for (int shift = 4 * (num_digits - 1); shift >= 0; shift -= 4) out += kDigits[c >> shift & 0xF];
  return out;
}

void AppendTextRepr(const MarkedText& text, MarkedText& out) {
  const std::string& bytes = text.bytes();
  const bool has_single = bytes.find('\'') != std::string::npos;
  const char quote = has_single && bytes.find('"') == std::string::npos ? '"' : '\'';
  out.Append(std::string_view(&quote, 1));
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char c = CharAt(bytes, at);
    const bool is_input = text.IsInput(at);
    if (c.code == U'\\' || c.code == static_cast<char32_t>(quote)) {
      out.Append(std::string("\\") + static_cast<char>(c.code), is_input);
    } else if (c.code == U'\n' || c.code == U'\r' || c.code == U'\t') {
      out.Append(c.code == U'\n' ? "\\n" : c.code == U'\r' ? "\\r" : "\\t", is_input);
    } else if (!IsPrintable(c.code)) {
      out.Append(HexEscape(c.code), is_input);
    } else {
      out.AppendSlice(text, at, at + c.size);
    }
    at += c.size;
  }
  out.Append(std::string_view(&quote, 1));
}

void AppendListRepr(const List& list, MarkedText& out) {
  if (list.form() == ListForm::kIterator) return out.Append("<generator object>");
  const bool is_tuple = list.form() == ListForm::kTuple;
  out.Append(is_tuple ? "(" : "[");
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out.Append(", ");
    AppendRepr(list.items()[i], out);
  }
  if (is_tuple && list.size() == 1) out.Append(",");
  out.Append(is_tuple ? ")" : "]");
}

void AppendDictRepr(const Dict& dict, MarkedText& out) {
  out.Append("{");
  bool is_first = true;
  for (const auto& [key, value] : dict.items()) {
    if (!std::exchange(is_first, false)) out.Append(", ");
    AppendRepr(key, out);
    out.Append(": ");
    AppendRepr(value, out);
  }
  out.Append("}");
}

// Writes JSON as Python's json.dumps does.
class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  Status Write(const Value& value, int level) {
    switch (value.kind()) {
      case Kind::kNone:
        out.Append("null");
        return {};
      case Kind::kBool:
        out.Append(value.AsBool() ? "true" : "false");
        return {};
      case Kind::kInt:
        out.Append(std::to_string(value.AsInteger()));
        return {};
      case Kind::kFloat:
        WriteFloat(value.AsDouble());
        return {};
      case Kind::kText:
        WriteText(value.AsText());
        return {};
      case Kind::kList:
        if (value.AsList().form() != ListForm::kIterator) return WriteList(value.AsList(), level);
        break;
      case Kind::kDict:
        return WriteDict(value.AsDict(), level);
      default:
        break;
    }
    return InvalidArgError("tojson: a value of type ", value.TypeName(), " has no JSON form");
  }

  MarkedText out;

 private:
  void WriteFloat(double value) {
    if (std::isnan(value)) return out.Append("NaN");
    if (std::isinf(value)) return out.Append(value > 0 ? "Infinity" : "-Infinity");
    out.Append(FloatRepr(value));
  }

  void WriteText(const MarkedText& text) {
    out.Append("\"");
    const std::string& bytes = text.bytes();
    for (size_t at = 0; at < bytes.size();) {
      const Utf8Char c = CharAt(bytes, at);
      const std::string escape = Escape(c.code);
      if (escape.empty()) {
        out.AppendSlice(text, at, at + c.size);
      } else {
        out.Append(escape, text.IsInput(at));
      }
      at += c.size;
    }
    out.Append("\"");
  }

  // Empty if the character is written as it is.
  std::string Escape(char32_t c) const {
    switch (c) {
      case U'"':
        return "\\\"";
      case U'\\':
        return "\\\\";
      case U'\n':
        return "\\n";
      case U'\r':
        return "\\r";
      case U'\t':
        return "\\t";
      case U'\b':
        return "\\b";
      case U'\f':
        return "\\f";
      default:
        break;
    }
    if (c >= 0x20 && (c < 0x7F || !style_.ensure_ascii)) return {};
    if (c == 0x7F) return {};
    if (c < 0x10000) return UnicodeEscape(c);
    return UnicodeEscape(0xD800 + ((c - 0x10000) >> 10)) +
           UnicodeEscape(0xDC00 + ((c - 0x10000) & 0x3FF));
  }
  static std::string UnicodeEscape(char32_t c) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string escape = "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) escape += kDigits[c >> shift & 0xF];
    return escape;
  }

  void NewLine(int level) {
    if (style_.indent < 0) return;
    out.Append("\n" + std::string(static_cast<size_t>(style_.indent) * level, ' '));
  }
  // Before the next item of a list or dictionary.
  void Separate(bool is_first, int level) {
    if (!is_first) out.Append(style_.item_separator);
    NewLine(level);
  }

  Status WriteList(const List& list, int level) {
    out.Append("[");
    for (size_t i = 0; i < list.size(); ++i) {
      Separate(i == 0, level + 1);
      NEREID_RETURN_IF_ERROR(Write(list.items()[i], level + 1));
    }
    if (list.size() > 0) NewLine(level);
    out.Append("]");
    return {};
  }

  Status WriteDict(const Dict& dict, int level) {
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items()) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [](const auto* a, const auto* b) {
        return ToText(a->first).bytes() < ToText(b->first).bytes();
      });
    }
    out.Append("{");
    bool is_first = true;
    for (const auto* item : items) {
      Separate(std::exchange(is_first, false), level + 1);
      NEREID_RETURN_IF_ERROR(WriteKey(item->first));
      out.Append(style_.key_separator);
      NEREID_RETURN_IF_ERROR(Write(item->second, level + 1));
    }
    if (!items.empty()) NewLine(level);
    out.Append("}");
    return {};
  }

  Status WriteKey(const Value& key) {
    if (key.is_text()) {
      WriteText(key.AsText());
      return {};
    }
    if (key.kind() == Kind::kList || key.is_object()) {
      return InvalidArgError("tojson: a key of type ", key.TypeName(), " has no JSON form");
    }
    out.Append("\"");
    NEREID_RETURN_IF_ERROR(Write(key, 0));
    out.Append("\"");
    return {};
  }

  const JsonStyle& style_;
};

bool AreNumbersEqual(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return a.AsInteger() == b.AsInteger();
  return a.AsDouble() == b.AsDouble();
}

bool AreItemsEqual(const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), IsEqual);
}

bool AreDictsEqual(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.items().begin(), a.items().end(), [&](const auto& item) {
    const Value* const other = b.Find(item.first);
    return other != nullptr && IsEqual(item.second, *other);
  });
}

Result<Value> FromJsonAt(const nlohmann::ordered_json& json, bool is_input, int depth) {
  if (depth > kMaxValueDepth) {
    return InvalidArgError("JSON is nested deeper than the limit of ", kMaxValueDepth, " levels");
  }
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return Value(json.get<bool>());
    case Type::number_integer:
      return Value(json.get<int64_t>());
    case Type::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        return InvalidArgError("the integer ", json.get<uint64_t>(), " exceeds 64 bits with sign");
      }
      return Value(static_cast<int64_t>(json.get<uint64_t>()));
    case Type::number_float:
      return Value(json.get<double>());
    case Type::string:
      return Value(MarkedText(json.get_ref<const std::string&>(), is_input));
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) {
        NEREID_ASSIGN_OR_RETURN(Value value, FromJsonAt(item, is_input, depth + 1));
        items.push_back(std::move(value));
      }
      return Value(List(std::move(items)));
    }
    case Type::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) {
        NEREID_ASSIGN_OR_RETURN(Value value, FromJsonAt(item, is_input, depth + 1));
        dict.Set(Value(MarkedText(key, is_input)), std::move(value));
      }
      return Value(std::move(dict));
    }
    default:
      return Value();
  }
}

}  // namespace

Value Value::Undefined(std::string message) {
  Value value;
  value.rep_ = std::make_shared<const UndefinedRep>(UndefinedRep{std::move(message)});
  return value;
}

Value::Value(MarkedText text, bool is_markup)
    : rep_(std::make_shared<const TextRep>(TextRep{std::move(text), is_markup})) {}
Value::Value(List list) : rep_(std::make_shared<const List>(std::move(list))) {}
Value::Value(Dict dict) : rep_(std::make_shared<const Dict>(std::move(dict))) {}

double Value::AsDouble() const {
  return kind() == Kind::kFloat ? std::get<4>(rep_) : static_cast<double>(AsInteger());
}

int Value::depth() const {
  return is_list() ? AsList().depth() : is_dict() ? AsDict().depth() : 0;
}

std::string Value::TypeName() const {
  switch (kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kList:
      return AsList().form() == ListForm::kList    ? "list"
             : AsList().form() == ListForm::kTuple ? "tuple"
                                                   : "generator";
    case Kind::kDict:
      return "dict";
    case Kind::kObject:
      return AsObject().TypeName();
  }
  return "object";
}

List::List(std::vector<Value> items, ListForm form)
    : items_(std::move(items)), form_(form), depth_(DepthOf(items_)) {}

std::optional<size_t> Dict::IndexOf(const Value& key) const {
  if (key.is_text()) {
    const auto found = index_of_text_.find(key.AsText().bytes());
    if (found == index_of_text_.end()) return std::nullopt;
    return found->second;
  }
  for (const size_t index : other_keys_) {
    if (IsEqual(items_[index].first, key)) return index;
  }
  return std::nullopt;
}

const Value* Dict::Find(const Value& key) const {
  const std::optional<size_t> index = IndexOf(key);
  return index.has_value() ? &items_[*index].second : nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  const auto found = index_of_text_.find(std::string(key));
  return found == index_of_text_.end() ? nullptr : &items_[found->second].second;
}

void Dict::Set(Value key, Value value) {
  depth_ = std::max({depth_, key.depth() + 1, value.depth() + 1});
  if (const std::optional<size_t> index = IndexOf(key)) {
    items_[*index].second = std::move(value);
    return;
  }
  if (key.is_text()) {
    index_of_text_.emplace(key.AsText().bytes(), items_.size());
  } else {
    other_keys_.push_back(items_.size());
  }
  items_.emplace_back(std::move(key), std::move(value));
}

Result<Value> Object::Call(Interpreter&, Arguments) {
  return InvalidArgError("'", TypeName(), "' object is not callable");
}

bool IsHashable(const Value& value) {
  if (value.is_dict()) return false;
  if (!value.is_list()) return true;
  const List& list = value.AsList();
  return list.form() != ListForm::kList &&
         std::all_of(list.items().begin(), list.items().end(), IsHashable);
}

bool IsEqual(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return AreNumbersEqual(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kText:
      return a.AsText().bytes() == b.AsText().bytes();
    case Kind::kList:
      if (&a.AsList() == &b.AsList()) return true;
      return a.AsList().form() == b.AsList().form() && a.AsList().form() != ListForm::kIterator &&
             AreItemsEqual(a.AsList().items(), b.AsList().items());
    case Kind::kDict:
      return AreDictsEqual(a.AsDict(), b.AsDict());
    case Kind::kObject:
      return a.object() == b.object();
    default:
      return true;  // None or undefined
  }
}

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.AsBool();
    case Kind::kInt:
      return value.AsInteger() != 0;
    case Kind::kFloat:
      return value.AsDouble() != 0;
    case Kind::kText:
      return !value.AsText().empty();
    case Kind::kList:
      return value.AsList().form() == ListForm::kIterator || value.AsList().size() > 0;
    case Kind::kDict:
      return value.AsDict().size() > 0;
    case Kind::kObject: {
      const auto elements = value.AsObject().Elements();
      return !elements.has_value() || !elements->empty();
    }
  }
  return false;
}

Result<bool> IsLess(const Value& a, const Value& b) {
  if (a.is_undefined()) return InvalidArgError(a.undefined_message());
  if (b.is_undefined()) return InvalidArgError(b.undefined_message());
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.AsInteger() < b.AsInteger();
    return a.AsDouble() < b.AsDouble();
  }
  // UTF-8 has the order of code points, which is Python's.
  if (a.is_text() && b.is_text()) return a.AsText().bytes() < b.AsText().bytes();
  if (a.is_list() && b.is_list() && a.AsList().form() == b.AsList().form()) {
    const std::vector<Value>& x = a.AsList().items();
    const std::vector<Value>& y = b.AsList().items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!IsEqual(x[i], y[i])) return IsLess(x[i], y[i]);
    }
    return x.size() < y.size();
  }
  return InvalidArgError("'<' not supported between instances of '", a.TypeName(), "' and '",
                         b.TypeName(), "'");
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double magnitude = std::fabs(value);
  // Python writes the shortest digits, with an exponent where it is below -4 or above 15.
  const bool has_exponent = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  std::array<char, 64> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                    has_exponent ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(buffer.data(), end.ptr);
  if (!has_exponent && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void AppendRepr(const Value& value, MarkedText& out) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return out.Append("Undefined");
    case Kind::kNone:
      return out.Append("None");
    case Kind::kBool:
      return out.Append(value.AsBool() ? "True" : "False");
    case Kind::kInt:
      return out.Append(std::to_string(value.AsInteger()));
    case Kind::kFloat:
      return out.Append(FloatRepr(value.AsDouble()));
    case Kind::kText:
      if (value.is_markup()) {
        out.Append("Markup(");
        AppendTextRepr(value.AsText(), out);
        return out.Append(")");
      }
      return AppendTextRepr(value.AsText(), out);
    case Kind::kList:
      return AppendListRepr(value.AsList(), out);
    case Kind::kDict:
      return AppendDictRepr(value.AsDict(), out);
    case Kind::kObject:
      return out.Append(value.AsObject().Repr());
  }
}

MarkedText ToText(const Value& value) {
  if (value.is_text()) return value.AsText();
  MarkedText out;
  if (!value.is_undefined()) AppendRepr(value, out);
  return out;
}

Result<MarkedText> ToJson(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  NEREID_RETURN_IF_ERROR(writer.Write(value, 0));
  return std::move(writer.out);
}

Result<Value> FromJson(const nlohmann::ordered_json& json, bool is_input) {
  return FromJsonAt(json, is_input, 0);
}

}  // namespace nereid::tokenizer::jinja
