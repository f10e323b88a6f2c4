// See operators.h.
#include "backends/tokenizer/lib/chat/jinja/operators.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer::jinja {
namespace {

Status TypeError(std::string_view op, const Value& a, const Value& b) {
  return InvalidArgError("unsupported operand type(s) for ", op, ": '", a.TypeName(), "' and '",
                         b.TypeName(), "'");
}

Status OverflowError(std::string_view op) {
  return InvalidArgError("the result of ", op, " exceeds 64 bits");
}

// Python rounds quotients of integers down, and the remainder has the divisor's sign.
int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Result<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return InvalidArgError("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) {
      return OverflowError("**");
    }
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return OverflowError("**");
  }
  return Value(result);
}

Result<Value> IntegerBinary(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+" || op == "-" || op == "*") {
    const bool overflows = op == "+"   ? __builtin_add_overflow(a, b, &result)
                           : op == "-" ? __builtin_sub_overflow(a, b, &result)
                                       : __builtin_mul_overflow(a, b, &result);
    if (overflows) return OverflowError(op);
    return Value(result);
  }
  if (op == "**") return IntegerPower(a, b);
  if (b == 0) return InvalidArgError("division by zero");
  if (op == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {  // the quotient of the least integer overflows
    if (op == "%") return Value(int64_t{0});
    if (__builtin_sub_overflow(int64_t{0}, a, &result)) return OverflowError(op);
    return Value(result);
  }
  const int64_t quotient = FloorDivide(a, b);
  return Value(op == "//" ? quotient : a - quotient * b);
}

Result<Value> FloatBinary(std::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") {
    const double result = std::pow(a, b);
    if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
      return UnsupportedError("complex numbers are not supported");
    }
    return Value(result);
  }
  if (b == 0) return InvalidArgError("division by zero");
  if (op == "/") return Value(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == "%") return Value(remainder == 0 ? std::copysign(0.0, b) : remainder);
  return Value(std::round((a - remainder) / b));
}

Result<Value> AddTexts(Interpreter& interpreter, const Value& a, const Value& b) {
  const bool is_markup = a.is_markup() || b.is_markup();
  const auto part = [&](const Value& value) {
    return is_markup && !value.is_markup() ? EscapeHtml(value.AsText()) : value.AsText();
  };
  MarkedText text = part(a);
  text.Append(part(b));
  return interpreter.MakeText(std::move(text), is_markup);
}

Result<Value> Repeat(Interpreter& interpreter, const Value& value, int64_t count) {
  const size_t times = count < 0 ? 0 : static_cast<size_t>(count);
  const size_t size = value.is_text() ? value.AsText().size() : value.AsList().size();
  if (size > 0 && times > interpreter.limits().max_output_bytes / size) {
    return InvalidArgError("repeating ", size, " elements ", times, " times exceeds the limit of ",
                           interpreter.limits().max_output_bytes);
  }
  if (value.is_text()) {
    MarkedText text;
    for (size_t i = 0; size > 0 && i < times; ++i) text.Append(value.AsText());
    return interpreter.MakeText(std::move(text), value.is_markup());
  }
  NEREID_RETURN_IF_ERROR(interpreter.Charge(64 * size * times));
  std::vector<Value> items;
  for (size_t i = 0; size > 0 && i < times; ++i) {
    items.insert(items.end(), value.AsList().items().begin(), value.AsList().items().end());
  }
  return interpreter.MakeList(std::move(items), value.AsList().form());
}

bool IsSequence(const Value& value) {
  return value.is_text() || (value.is_list() && value.AsList().form() != ListForm::kIterator);
}

// The positions that Python's slice visits in a sequence of `size` elements.
Result<std::vector<size_t>> SlicePositions(Interpreter& interpreter, size_t size,
                                           std::optional<int64_t> begin, std::optional<int64_t> end,
                                           int64_t step) {
  const auto length = static_cast<int64_t>(size);
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? length : length - 1;
  const auto clamp = [&](std::optional<int64_t> at, int64_t fallback) {
    if (!at.has_value()) return fallback;
    const int64_t from_begin = *at < 0 ? *at + length : *at;
    return std::clamp(from_begin, low, high);
  };
  const int64_t first = clamp(begin, step > 0 ? low : high);
  const int64_t last = clamp(end, step > 0 ? high : low);
  std::vector<size_t> positions;
  NEREID_RETURN_IF_ERROR(interpreter.Charge(8 * size));
  for (int64_t at = first; step > 0 ? at < last : at > last;) {
    positions.push_back(static_cast<size_t>(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return positions;
}

Result<Value> SliceText(Interpreter& interpreter, const MarkedText& text,
                        std::optional<int64_t> begin, std::optional<int64_t> end, int64_t step) {
  std::vector<size_t> offsets;
  NEREID_RETURN_IF_ERROR(interpreter.Charge(8 * text.size()));
  for (size_t at = 0; at < text.size(); at += CharAt(text.bytes(), at).size) offsets.push_back(at);
  const size_t size = offsets.size();
  offsets.push_back(text.size());
  NEREID_ASSIGN_OR_RETURN(const std::vector<size_t> positions,
                          SlicePositions(interpreter, size, begin, end, step));
  MarkedText out;
  if (step == 1) {
    if (!positions.empty())
      out = text.Slice(offsets[positions.front()], offsets[positions.back() + 1]);
  } else {
    for (const size_t at : positions) out.AppendSlice(text, offsets[at], offsets[at + 1]);
  }
  return interpreter.MakeText(std::move(out));
}

// One conversion of a format, such as "%-5.2f".
struct Conversion {
  std::string flags;
  int width = 0;
  int precision = -1;
  char kind = '\0';
};

Result<Conversion> ReadConversion(const std::string& format, size_t& at) {
  constexpr int kMaxWidth = 1000;
  Conversion conversion;
  while (at < format.size() && std::string_view("-+ 0#").find(format[at]) != std::string::npos) {
    conversion.flags += format[at++];
  }
  const auto number = [&] {
    int value = 0;
    while (at < format.size() && std::isdigit(static_cast<unsigned char>(format[at]))) {
      value = std::min(value * 10 + (format[at++] - '0'), kMaxWidth + 1);
    }
    return value;
  };
  conversion.width = number();
  if (at < format.size() && format[at] == '.') {
    ++at;
    conversion.precision = number();
  }
  if (conversion.width > kMaxWidth || conversion.precision > kMaxWidth) {
    return InvalidArgError("a format's width exceeds the limit of ", kMaxWidth);
  }
  if (at == format.size()) return InvalidArgError("incomplete format");
  conversion.kind = format[at++];
  return conversion;
}

MarkedText Pad(MarkedText text, const Conversion& conversion) {
  const size_t size = CountChars(text.bytes());
  const auto width = static_cast<size_t>(conversion.width);
  if (size >= width) return text;
  MarkedText out;
  const bool is_left = conversion.flags.find('-') != std::string::npos;
  if (!is_left) out.Append(std::string(width - size, ' '));
  out.Append(text);
  if (is_left) out.Append(std::string(width - size, ' '));
  return out;
}

Result<MarkedText> Format(const Conversion& conversion, const Value& value) {
  if (conversion.kind == 's' || conversion.kind == 'r') {
    MarkedText text;
    if (conversion.kind == 's') {
      text = ToText(value);
    } else {
      AppendRepr(value, text);
    }
    if (conversion.precision >= 0) {
      const auto limit = static_cast<size_t>(conversion.precision);
      if (CountChars(text.bytes()) > limit) text = text.Slice(0, ByteOffset(text.bytes(), limit));
    }
    return Pad(std::move(text), conversion);
  }
  if (!value.is_number()) {
    return InvalidArgError("%", conversion.kind, " format: a real number is required, not ",
                           value.TypeName());
  }
  std::string spec = "%" + conversion.flags;
  if (conversion.width > 0) spec += std::to_string(conversion.width);
  if (conversion.precision >= 0) spec += "." + std::to_string(conversion.precision);
  std::array<char, 2048> buffer;
  int size = 0;
  if (std::string_view("diuxXo").find(conversion.kind) != std::string_view::npos) {
    const char kind = conversion.kind == 'u' || conversion.kind == 'i' ? 'd' : conversion.kind;
    spec += std::string("ll") + kind;
    const auto number =
        value.is_integer() ? value.AsInteger() : static_cast<int64_t>(std::trunc(value.AsDouble()));
    size = std::snprintf(buffer.data(), buffer.size(), spec.c_str(),
                         static_cast<long long>(number));  // NOLINT: the type of %lld
  } else if (std::string_view("eEfFgG").find(conversion.kind) != std::string_view::npos) {
    spec += conversion.kind;
    size = std::snprintf(buffer.data(), buffer.size(), spec.c_str(), value.AsDouble());
  } else {
    return InvalidArgError("unsupported format character '", conversion.kind, "'");
  }
  return MarkedText(
      std::string(buffer.data(), std::min<size_t>(static_cast<size_t>(size), buffer.size() - 1)));
}

}  // namespace

size_t CountChars(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); }));
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += Utf8Length(text[at]);
  return at;
}

MarkedText EscapeHtml(const MarkedText& text) {
  MarkedText out;
  size_t copied = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text.bytes()[at];
    const char* const entity = c == '&'    ? "&amp;"
                               : c == '<'  ? "&lt;"
                               : c == '>'  ? "&gt;"
                               : c == '"'  ? "&#34;"
                               : c == '\'' ? "&#39;"
                                           : nullptr;
    if (entity == nullptr) continue;
    out.AppendSlice(text, copied, at);
    out.Append(entity, text.IsInput(at));
    copied = at + 1;
  }
  out.AppendSlice(text, copied, text.size());
  return out;
}

Result<Value> FormatPercent(Interpreter& interpreter, const MarkedText& format,
                            const Value& values) {
  std::vector<Value> arguments = {values};
  if (values.is_list() && values.AsList().form() == ListForm::kTuple) {
    arguments = values.AsList().items();
  }
  size_t used = 0;
  MarkedText out;
  const std::string& bytes = format.bytes();
  for (size_t at = 0; at < bytes.size();) {
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.AppendSlice(format, at, percent);
    if (percent == bytes.size()) break;
    at = percent + 1;
    std::optional<Value> value;
    if (at < bytes.size() && bytes[at] == '(') {
      const size_t close = bytes.find(')', at);
      if (close == std::string::npos) return InvalidArgError("incomplete format key");
      const Value* const found =
          values.is_dict() ? values.AsDict().Find(bytes.substr(at + 1, close - at - 1)) : nullptr;
      if (found == nullptr) {
        return InvalidArgError("format has no value for '", bytes.substr(at + 1, close - at - 1),
                               "'");
      }
      value = *found;
      at = close + 1;
    }
    NEREID_ASSIGN_OR_RETURN(const Conversion conversion, ReadConversion(bytes, at));
    if (conversion.kind == '%') {
      out.Append("%");
      continue;
    }
    if (!value.has_value()) {
      if (used == arguments.size())
        return InvalidArgError("not enough arguments for format string");
      value = arguments[used++];
    }
    NEREID_ASSIGN_OR_RETURN(const MarkedText text, Format(conversion, *value));
    out.Append(text);
  }
  if (used < arguments.size() && !values.is_dict()) {
    return InvalidArgError("not all arguments converted during string formatting");
  }
  return interpreter.MakeText(std::move(out));
}

Result<Value> Binary(Interpreter& interpreter, std::string_view op, const Value& a,
                     const Value& b) {
  if (op == "%" && a.is_text()) return FormatPercent(interpreter, a.AsText(), b);
  if (a.is_undefined()) return InvalidArgError(a.undefined_message());
  if (b.is_undefined()) return InvalidArgError(b.undefined_message());
  if (a.is_integer() && b.is_integer()) return IntegerBinary(op, a.AsInteger(), b.AsInteger());
  if (a.is_number() && b.is_number()) return FloatBinary(op, a.AsDouble(), b.AsDouble());
  if (op == "+") {
    if (a.is_text() && b.is_text()) return AddTexts(interpreter, a, b);
    if (a.is_list() && b.is_list() && a.AsList().form() == b.AsList().form() && IsSequence(a)) {
      NEREID_RETURN_IF_ERROR(interpreter.Charge(64 * (a.AsList().size() + b.AsList().size())));
      std::vector<Value> items = a.AsList().items();
      items.insert(items.end(), b.AsList().items().begin(), b.AsList().items().end());
      return interpreter.MakeList(std::move(items), a.AsList().form());
    }
    if (a.is_text()) {
      return InvalidArgError("can only concatenate str (not \"", b.TypeName(), "\") to str");
    }
  }
  if (op == "*") {
    if (IsSequence(a) && b.is_integer()) return Repeat(interpreter, a, b.AsInteger());
    if (IsSequence(b) && a.is_integer()) return Repeat(interpreter, b, a.AsInteger());
  }
  return TypeError(op, a, b);
}

Result<Value> Negate(const Value& value) {
  if (value.is_undefined()) return InvalidArgError(value.undefined_message());
  if (value.is_integer()) return IntegerBinary("-", 0, value.AsInteger());
  if (value.is_number()) return Value(-value.AsDouble());
  return InvalidArgError("bad operand type for unary -: '", value.TypeName(), "'");
}

Result<Value> Plus(const Value& value) {
  if (value.is_undefined()) return InvalidArgError(value.undefined_message());
  if (value.is_integer()) return Value(value.AsInteger());
  if (value.is_number()) return value;
  return InvalidArgError("bad operand type for unary +: '", value.TypeName(), "'");
}

Result<bool> Contains(Interpreter& interpreter, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text()) {
      return InvalidArgError("'in <string>' requires string as left operand, not ",
                             item.TypeName());
    }
    NEREID_RETURN_IF_ERROR(interpreter.Charge(container.AsText().size()));
    return container.AsText().bytes().find(item.AsText().bytes()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (!IsHashable(item)) return InvalidArgError("unhashable type: '", item.TypeName(), "'");
    return container.AsDict().Find(item) != nullptr;
  }
  Result<std::vector<Value>> elements = interpreter.Elements(container);
  if (!elements.ok()) {
    return InvalidArgError("argument of type '", container.TypeName(), "' is not iterable");
  }
  return std::any_of(elements->begin(), elements->end(),
                     [&](const Value& element) { return IsEqual(element, item); });
}

Result<bool> Compare(Interpreter& interpreter, std::string_view op, const Value& a,
                     const Value& b) {
  if (op == "==") return IsEqual(a, b);
  if (op == "!=") return !IsEqual(a, b);
  if (op == "in") return Contains(interpreter, b, a);
  if (op == "not in") {
    NEREID_ASSIGN_OR_RETURN(const bool contains, Contains(interpreter, b, a));
    return !contains;
  }
  if (op == "<") return IsLess(a, b);
  if (op == ">") return IsLess(b, a);
  NEREID_ASSIGN_OR_RETURN(const bool is_less, op == "<=" ? IsLess(a, b) : IsLess(b, a));
  return is_less || IsEqual(a, b);
}

Result<Value> Slice(Interpreter& interpreter, const Value& value, std::optional<int64_t> begin,
                    std::optional<int64_t> end, std::optional<int64_t> step) {
  if (value.is_undefined()) return InvalidArgError(value.undefined_message());
  const int64_t stride = step.value_or(1);
  if (stride == 0) return InvalidArgError("slice step cannot be zero");
  if (value.is_text()) return SliceText(interpreter, value.AsText(), begin, end, stride);
  if (!IsSequence(value)) {
    return InvalidArgError("'", value.TypeName(), "' object is not subscriptable");
  }
  const std::vector<Value>& items = value.AsList().items();
  NEREID_ASSIGN_OR_RETURN(const std::vector<size_t> positions,
                          SlicePositions(interpreter, items.size(), begin, end, stride));
  std::vector<Value> selected;
  selected.reserve(positions.size());
  for (const size_t at : positions) selected.push_back(items[at]);
  return interpreter.MakeList(std::move(selected), value.AsList().form());
}

}  // namespace nereid::tokenizer::jinja
