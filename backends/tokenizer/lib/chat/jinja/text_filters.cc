// Filters of texts and numbers. See builtins.h.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/tokenizer/lib/chat/jinja/builtins.h"
#include "backends/tokenizer/lib/chat/jinja/operators.h"
#include "backends/tokenizer/lib/chat/jinja/text_methods.h"
#include "backends/tokenizer/lib/text/unicode.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer::jinja {
namespace {

// --- Text ---

template <Case kMode>
Result<Value> CaseFilter(Interpreter& interpreter, const Value& input, Arguments&) {
  return interpreter.MakeText(ChangeCase(ToText(input), kMode));
}

Result<Value> Title(Interpreter& interpreter, const Value& input, Arguments&) {
  return interpreter.MakeText(TitleWords(ToText(input)));
}

Result<Value> Trim(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("trim", arguments, {"chars"}));
  std::optional<MarkedText> chars;
  if (bound[0].has_value() && !bound[0]->is_none()) chars = ToText(*bound[0]);
  return interpreter.MakeText(Strip(ToText(input), chars, Side::kBoth));
}

Result<Value> ReplaceFilter(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("replace", arguments, {"old", "new", "count"}, 2));
  NEREID_ASSIGN_OR_RETURN(const int64_t count, IntegerOf("replace", bound[2], -1));
  const size_t max_bytes = interpreter.limits().max_output_bytes;
  std::optional<MarkedText> text =
      Replace(ToText(input), ToText(*bound[0]), ToText(*bound[1]), count, max_bytes);
  if (!text.has_value()) {
    return InvalidArgError("replace: the result exceeds the limit of ", max_bytes, " bytes");
  }
  return interpreter.MakeText(std::move(*text));
}

Result<Value> Center(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("center", arguments, {"width"}));
  NEREID_ASSIGN_OR_RETURN(const int64_t width, IntegerOf("center", bound[0], 80));
  const auto limit = static_cast<int64_t>(interpreter.limits().max_output_bytes);
  if (width > limit) return InvalidArgError("center: ", width, " exceeds the limit of ", limit);
  return interpreter.MakeText(
      Justify(ToText(input), static_cast<size_t>(std::max<int64_t>(width, 0)), Side::kBoth, " "));
}

Result<Value> Indent(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("indent", arguments, {"width", "first", "blank"}));
  MarkedText indentation(std::string(4, ' '));
  if (bound[0].has_value()) {
    if (bound[0]->is_text()) {
      indentation = bound[0]->AsText();
    } else {
      NEREID_ASSIGN_OR_RETURN(const int64_t width, IntegerOf("indent", bound[0], 4));
      if (width > 1000) return InvalidArgError("indent: a width of ", width, " exceeds 1000");
      indentation = MarkedText(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
    }
  }
  const bool indents_first = BoolOf(bound[1], false), indents_blank = BoolOf(bound[2], false);
  if (!input.is_text()) return InvalidArgError("indent: expected a str, got ", input.TypeName());
  MarkedText text = input.AsText();
  NEREID_RETURN_IF_ERROR(interpreter.Charge(64 * text.size()));
  text.Append("\n");
  const std::vector<MarkedText> lines = SplitLines(text, /*keep_ends=*/false);
  MarkedText out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n");
    const bool is_indented = i == 0 ? indents_first : indents_blank || !lines[i].empty();
    if (is_indented) out.Append(indentation);
    out.Append(lines[i]);
    if (out.size() > interpreter.limits().max_output_bytes) break;  // MakeText reports it
  }
  return interpreter.MakeText(std::move(out));
}

Result<Value> Truncate(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("truncate", arguments, {"length", "killwords", "end", "leeway"}));
  NEREID_ASSIGN_OR_RETURN(const int64_t length, IntegerOf("truncate", bound[0], 255));
  NEREID_ASSIGN_OR_RETURN(const int64_t leeway, IntegerOf("truncate", bound[3], 5));
  const MarkedText end = TextOf(bound[2], "...");
  NEREID_ASSIGN_OR_RETURN(const Value input_size, interpreter.ApplyFilter("length", input, {}));
  const int64_t size = input_size.AsInteger();
  const auto end_size = static_cast<int64_t>(CountChars(end.bytes()));
  if (length < end_size || leeway < 0) {
    return InvalidArgError("truncate: expected length >= ", end_size, " and leeway >= 0, got ",
                           length, " and ", leeway);
  }
  if (size <= length || size - length <= leeway) return input;
  if (!input.is_text()) return InvalidArgError("truncate: expected a str, got ", input.TypeName());
  const MarkedText& text = input.AsText();
  MarkedText out = text.Slice(0, ByteOffset(text.bytes(), static_cast<size_t>(length - end_size)));
  if (!BoolOf(bound[1], false)) {
    if (const size_t space = out.bytes().rfind(' '); space != std::string::npos) {
      out = out.Slice(0, space);
    }
  }
  out.Append(end);
  return interpreter.MakeText(std::move(out));
}

Result<Value> WordCount(Interpreter& interpreter, const Value& input, Arguments&) {
  const MarkedText text = ToText(input);
  NEREID_RETURN_IF_ERROR(interpreter.Charge(text.size()));
  int64_t count = 0;
  bool is_in_word = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = CharAt(text.bytes(), at);
    const bool is_word = IsWordChar(c.code);
    if (is_word && !is_in_word) ++count;
    is_in_word = is_word;
    at += c.size;
  }
  return Value(count);
}

Result<Value> Escape(Interpreter& interpreter, const Value& input, Arguments&) {
  if (input.is_markup()) return input;
  return interpreter.MakeText(EscapeHtml(ToText(input)), /*is_markup=*/true);
}
Result<Value> ForceEscape(Interpreter& interpreter, const Value& input, Arguments&) {
  return interpreter.MakeText(EscapeHtml(ToText(input)), /*is_markup=*/true);
}
Result<Value> Safe(Interpreter& interpreter, const Value& input, Arguments&) {
  return interpreter.MakeText(ToText(input), /*is_markup=*/true);
}
Result<Value> String(Interpreter& interpreter, const Value& input, Arguments&) {
  if (input.is_text()) return input;
  return interpreter.MakeText(ToText(input));
}

Result<Value> FormatFilter(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  if (!arguments.named.empty()) {
    if (!arguments.positional.empty()) {
      return InvalidArgError(
          "format: can't handle positional and keyword arguments at the same time");
    }
    Dict values;
    for (auto& [name, value] : arguments.named) values.Set(Value(name), std::move(value));
    return FormatPercent(interpreter, ToText(input), Value(std::move(values)));
  }
  return FormatPercent(interpreter, ToText(input),
                       Value(List(std::move(arguments.positional), ListForm::kTuple)));
}

Result<Value> UrlEncode(Interpreter& interpreter, const Value& input, Arguments&) {
  if (input.is_dict() || input.is_list()) {
    return UnsupportedError("urlencode: only texts are supported, got ", input.TypeName());
  }
  constexpr char kDigits[] = "0123456789ABCDEF";
  const MarkedText text = ToText(input);
  MarkedText out;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text.bytes()[at]);
    if (std::isalnum(byte) ||
        std::string_view("_.-~/").find(static_cast<char>(byte)) != std::string_view::npos) {
      out.AppendSlice(text, at, at + 1);
    } else {
      out.Append(std::string{'%', kDigits[byte >> 4], kDigits[byte & 15]}, text.IsInput(at));
    }
  }
  return interpreter.MakeText(std::move(out));
}

Result<Value> ToJsonFilter(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      Bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = BoolOf(bound[0], false);
  style.sort_keys = BoolOf(bound[3], false);
  if (bound[1].has_value() && !bound[1]->is_none()) {
    NEREID_ASSIGN_OR_RETURN(const int64_t indent, IntegerOf("tojson", bound[1], 0));
    if (indent > 100) return InvalidArgError("tojson: an indent of ", indent, " exceeds 100");
    style.indent = static_cast<int>(std::max<int64_t>(indent, 0));
    style.item_separator = ",";
  }
  if (bound[2].has_value() && !bound[2]->is_none()) {
    NEREID_ASSIGN_OR_RETURN(const std::vector<Value> separators, interpreter.Elements(*bound[2]));
    if (separators.size() != 2) return InvalidArgError("tojson: expected two separators");
    style.item_separator = ToText(separators[0]).bytes();
    style.key_separator = ToText(separators[1]).bytes();
  }
  NEREID_ASSIGN_OR_RETURN(MarkedText text, ToJson(input, style));
  return interpreter.MakeText(std::move(text));
}

// --- Numbers ---

std::string WithoutUnderscores(std::string text) {
  std::erase(text, '_');
  return text;
}

// The number that Python's float() reads, or nothing.
std::optional<double> ParseFloat(const MarkedText& text) {
  const std::string stripped = WithoutUnderscores(Strip(text, std::nullopt, Side::kBoth).bytes());
  // strtod also reads hexadecimal numbers, which Python does not.
  if (stripped.empty() || stripped.find_first_of("xXpP(") != std::string::npos) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double value = std::strtod(stripped.c_str(), &end);
  if (end != stripped.c_str() + stripped.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> ParseInteger(const MarkedText& text, int base) {
  std::string stripped = WithoutUnderscores(Strip(text, std::nullopt, Side::kBoth).bytes());
  const bool is_negative = stripped.starts_with('-');
  if (is_negative || stripped.starts_with('+')) stripped.erase(0, 1);
  if (base == 16 && (stripped.starts_with("0x") || stripped.starts_with("0X"))) {
    stripped.erase(0, 2);
  }
  int64_t value = 0;
  const char* const last = stripped.data() + stripped.size();
  const auto end = std::from_chars(stripped.data(), last, value, base);
  if (stripped.empty() || stripped[0] == '-' || end.ec != std::errc() || end.ptr != last) {
    return std::nullopt;
  }
  return is_negative ? -value : value;
}

std::optional<int64_t> Truncated(double value) {
  if (!(std::fabs(value) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Result<Value> Int(Interpreter&, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("int", arguments, {"default", "base"}));
  NEREID_ASSIGN_OR_RETURN(const int64_t base, IntegerOf("int", bound[1], 10));
  if (base < 2 || base > 36) return InvalidArgError("int: base must be 2 to 36, got ", base);
  std::optional<int64_t> value;
  if (input.is_text()) {
    value = ParseInteger(input.AsText(), static_cast<int>(base));
    if (!value.has_value()) {
      if (const std::optional<double> number = ParseFloat(input.AsText())) {
        value = Truncated(*number);
      }
    }
  } else if (input.is_integer()) {
    value = input.AsInteger();
  } else if (input.is_number()) {
    value = Truncated(input.AsDouble());
  } else if (input.is_undefined()) {
    return InvalidArgError(input.undefined_message());
  }
  if (value.has_value()) return Value(*value);
  return bound[0].value_or(Value(int64_t{0}));
}

Result<Value> Float(Interpreter&, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("float", arguments, {"default"}));
  if (input.is_undefined()) return InvalidArgError(input.undefined_message());
  if (input.is_number()) return Value(input.AsDouble());
  if (input.is_text()) {
    if (const std::optional<double> value = ParseFloat(input.AsText())) return Value(*value);
  }
  return bound[0].value_or(Value(0.0));
}

Result<Value> Abs(Interpreter&, const Value& input, Arguments&) {
  if (input.is_undefined()) return InvalidArgError(input.undefined_message());
  if (!input.is_number())
    return InvalidArgError("bad operand type for abs(): '", input.TypeName(), "'");
  if (!input.is_integer()) return Value(std::fabs(input.AsDouble()));
  return input.AsInteger() < 0 ? Negate(input) : Value(input.AsInteger());
}

Result<Value> Round(Interpreter&, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("round", arguments, {"precision", "method"}));
  NEREID_ASSIGN_OR_RETURN(const int64_t precision, IntegerOf("round", bound[0], 0));
  const std::string method = TextOf(bound[1], "common").bytes();
  if (!input.is_number())
    return InvalidArgError("round: expected a number, got ", input.TypeName());
  if (std::abs(precision) > 300) return InvalidArgError("round: precision must be -300 to 300");
  const double value = input.AsDouble();
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(value * scale) / scale);
  if (method == "floor") return Value(std::floor(value * scale) / scale);
  if (method != "common") return InvalidArgError("round: method must be common, ceil or floor");
  if (input.is_integer() && precision >= 0) return Value(input.AsInteger());
  if (precision < 0) {
    const double rounded = std::nearbyint(value * scale) / scale;
    return input.is_integer() ? Value(static_cast<int64_t>(rounded)) : Value(rounded);
  }
  // The decimal digits decide, as in Python.
  std::array<char, 1024> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(precision), value);
  return Value(std::strtod(buffer.data(), nullptr));
}

Result<Value> FileSizeFormat(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("filesizeformat", arguments, {"binary"}));
  NEREID_ASSIGN_OR_RETURN(const Value number, interpreter.ApplyFilter("float", input, {}));
  const bool is_binary = BoolOf(bound[0], false);
  const double base = is_binary ? 1024 : 1000;
  const double bytes = number.AsDouble();
  if (bytes == 1) return Value("1 Byte");
  if (bytes < base) return Value(StrCat(static_cast<int64_t>(bytes), " Bytes"));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  size_t index = 0;
  for (; index + 1 < kPrefixes.size() && bytes >= unit * base; ++index) unit *= base;
  std::array<char, 64> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.1f %c%s", bytes / unit,
                is_binary && index == 0 ? 'K' : kPrefixes[index], is_binary ? "iB" : "B");
  return Value(buffer.data());
}

constexpr std::pair<std::string_view, FilterFunction> kTextFilters[] = {
    {"abs", Abs},
    {"capitalize", CaseFilter<Case::kCapitalize>},
    {"center", Center},
    {"e", Escape},
    {"escape", Escape},
    {"filesizeformat", FileSizeFormat},
    {"float", Float},
    {"forceescape", ForceEscape},
    {"format", FormatFilter},
    {"indent", Indent},
    {"int", Int},
    {"lower", CaseFilter<Case::kLower>},
    {"replace", ReplaceFilter},
    {"round", Round},
    {"safe", Safe},
    {"string", String},
    {"title", Title},
    {"tojson", ToJsonFilter},
    {"trim", Trim},
    {"truncate", Truncate},
    {"upper", CaseFilter<Case::kUpper>},
    {"urlencode", UrlEncode},
    {"wordcount", WordCount},
};

}  // namespace

FilterFunction FindTextFilter(std::string_view name) {
  const auto found = std::find_if(std::begin(kTextFilters), std::end(kTextFilters),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == std::end(kTextFilters) ? nullptr : found->second;
}

}  // namespace nereid::tokenizer::jinja
