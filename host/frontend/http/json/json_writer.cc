// Escaping and number formats.
#include "host/frontend/http/json/json_writer.h"

#include <charconv>
#include <cstring>

#include "host/frontend/http/json/utf8.h"

namespace nereid::http {
namespace {

void AppendEscaped(std::string& json, char c) {
  constexpr char kHex[] = "0123456789ABCDEF";
  switch (c) {
    case '"':
      json += "\\\"";
      break;
    case '\\':
      json += "\\\\";
      break;
    case '\b':
      json += "\\b";
      break;
    case '\f':
      json += "\\f";
      break;
    case '\n':
      json += "\\n";
      break;
    case '\r':
      json += "\\r";
      break;
    case '\t':
      json += "\\t";
      break;
    default:
      json += "\\u00";
      json += kHex[(c >> 4) & 0xf];
      json += kHex[c & 0xf];
  }
}

// Returns true for eight bytes of ASCII that need no escape.
bool ArePlain(uint64_t bytes) {
  constexpr uint64_t kOnes = 0x0101010101010101, kHigh = kOnes << 7;
  const auto has_zero = [](uint64_t x) { return (x - kOnes) & ~x & kHigh; };
  return ((bytes | ((bytes - kOnes * ' ') & ~bytes)) & kHigh) == 0 &&
         (has_zero(bytes ^ kOnes * '"') | has_zero(bytes ^ kOnes * '\\')) == 0;
}

bool IsPlain(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + i, 8);
    if (!ArePlain(bytes)) return false;
  }
  for (; i < text.size(); ++i) {
    const unsigned char c = text[i];
    if (c < ' ' || c >= 0x80 || c == '"' || c == '\\') return false;
  }
  return true;
}

void AppendContent(std::string& json, std::string_view text) {
  size_t plain_from = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = text[i];
    if (c >= ' ' && c != '"' && c != '\\') continue;
    json.append(text, plain_from, i - plain_from);
    AppendEscaped(json, text[i]);
    plain_from = i + 1;
  }
  json.append(text, plain_from);
}

template <typename T>
void AppendInteger(std::string& json, T value) {
  char digits[24];
  const auto result = std::to_chars(digits, digits + sizeof(digits), value);
  json.append(digits, result.ptr);
}

// Appends the decimal 0.d1d2..dn * 10^point, where `digits` are d1 d2 .. dn.
void AppendDecimal(std::string& json, std::string_view digits, int point) {
  const int count = static_cast<int>(digits.size());
  if (point >= count && point <= 21) {
    json += digits;
    json.append(point - count, '0');
    json += ".0";
  } else if (point > 0 && point <= 21) {
    json += digits.substr(0, point);
    json += '.';
    json += digits.substr(point);
  } else if (point > -6 && point <= 0) {
    json += "0.";
    json.append(-point, '0');
    json += digits;
  } else {
    json += digits.front();
    if (count > 1) {
      json += '.';
      json += digits.substr(1);
    }
    json += 'e';
    AppendInteger(json, point - 1);
  }
}

}  // namespace

void AppendJsonString(std::string& json, std::string_view text) {
  json += '"';
  AppendContent(json, text);
  json += '"';
}

void AppendLossyJsonString(std::string& json, std::string_view text) {
  json += '"';
  if (IsPlain(text)) {
    json += text;
    json += '"';
    return;
  }
  while (true) {
    const size_t valid = ValidUtf8Prefix(text);
    AppendContent(json, text.substr(0, valid));
    if (valid == text.size()) break;
    json += "\xEF\xBF\xBD";
    text.remove_prefix(valid + 1);
  }
  json += '"';
}

void AppendJsonInt(std::string& json, int64_t value) {
  AppendInteger(json, value);
}
void AppendJsonUint(std::string& json, uint64_t value) {
  AppendInteger(json, value);
}

void AppendJsonDouble(std::string& json, double value) {
  char buffer[40];
  const auto result =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, result.ptr - buffer);  // [-]d[.ddd]e[+-]dd
  if (text.front() == '-') {
    json += '-';
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  int exponent = 0;
  const char* exponent_text = text.data() + e + 1;
  if (*exponent_text == '+') ++exponent_text;
  std::from_chars(exponent_text, text.data() + text.size(), exponent);

  char digits[24];
  size_t count = 0;
  for (const char c : text.substr(0, e)) {
    if (c != '.') digits[count++] = c;
  }
  if (count == 1 && digits[0] == '0') exponent = 0;
  AppendDecimal(json, {digits, count}, exponent + 1);
}

}  // namespace nereid::http
