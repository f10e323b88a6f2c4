// Each function leaves the cursor after the consumed text, or at the position of the error.
#include "host/frontend/http/json/json_reader.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "host/frontend/http/json/utf8.h"

namespace nereid::http {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// Returns the end of the number that starts at `p`, or null if it is not a number.
const char* ScanNumber(const char* p, const char* end, bool& is_integer) {
  const auto skip_digits = [&] {
    const char* start = p;
    while (p != end && IsDigit(*p)) ++p;
    return p != start;
  };
  if (p != end && *p == '-') ++p;
  if (p != end && *p == '0') {
    ++p;
  } else if (!skip_digits()) {
    return nullptr;
  }
  is_integer = true;
  if (p != end && *p == '.') {
    ++p;
    is_integer = false;
    if (!skip_digits()) return nullptr;
  }
  if (p != end && (*p == 'e' || *p == 'E')) {
    ++p;
    is_integer = false;
    if (p != end && (*p == '+' || *p == '-')) ++p;
    if (!skip_digits()) return nullptr;
  }
  return p;
}

// Returns the first byte from `p` on that a string cannot simply contain: a quotation mark, a
// backslash, a control character, or one that is not ASCII.
const char* SkipPlainText(const char* p, const char* end) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  constexpr uint64_t kHighBits = 0x80 * kOnes;
  if constexpr (std::endian::native == std::endian::little) {
    for (; end - p >= 8; p += 8) {
      uint64_t word;
      std::memcpy(&word, p, sizeof(word));
      const uint64_t quotes = word ^ '"' * kOnes, backslashes = word ^ '\\' * kOnes;
      // The high bit of each such byte. Only behind the first one may others be set as well.
      const uint64_t found_ascii =
          ((word - ' ' * kOnes) | (quotes - kOnes) | (backslashes - kOnes)) & ~word;
      const uint64_t found = (found_ascii | word) & kHighBits;
      if (found != 0) return p + std::countr_zero(found) / 8;
    }
  }
  const auto is_plain = [](unsigned char c) {
    return c >= ' ' && c < 0x80 && c != '"' && c != '\\';
  };
  return std::find_if_not(p, end, is_plain);
}

}  // namespace

std::string_view Describe(JsonKind kind) {
  switch (kind) {
    case JsonKind::kObject:
      return "an object";
    case JsonKind::kArray:
      return "an array";
    case JsonKind::kString:
      return "a string";
    case JsonKind::kNumber:
      return "a number";
    case JsonKind::kBool:
      return "a boolean";
    case JsonKind::kNull:
      return "null";
    case JsonKind::kEnd:
      return "the end of the text";
    case JsonKind::kInvalid:
      break;
  }
  return "no JSON value";
}

JsonKind JsonReader::Peek() {
  SkipBlanks();
  if (cursor_ == end_) return JsonKind::kEnd;
  const std::string_view rest(cursor_, end_ - cursor_);
  switch (*cursor_) {
    case '{':
      return JsonKind::kObject;
    case '[':
      return JsonKind::kArray;
    case '"':
      return JsonKind::kString;
    case 't':
      return rest.substr(0, 4) == "true" ? JsonKind::kBool : JsonKind::kInvalid;
    case 'f':
      return rest.substr(0, 5) == "false" ? JsonKind::kBool : JsonKind::kInvalid;
    case 'n':
      return rest.substr(0, 4) == "null" ? JsonKind::kNull : JsonKind::kInvalid;
    case '-':
      return JsonKind::kNumber;
    default:
      return IsDigit(*cursor_) ? JsonKind::kNumber : JsonKind::kInvalid;
  }
}

Status JsonReader::Unexpected(std::string_view expected) {
  const JsonKind kind = Peek();
  if (kind == JsonKind::kInvalid) {
    const unsigned char c = *cursor_;
    if (c > ' ' && c < 0x7f) return ErrorHere("expected ", expected, ", got '", *cursor_, "'");
  }
  return ErrorHere("expected ", expected, ", got ", Describe(kind));
}

Status JsonReader::Enter() {
  if (++depth_ > max_depth_) return ErrorHere("nested deeper than ", max_depth_, " levels");
  return Status::Ok();
}

bool JsonReader::SeenKeys::Insert(std::string_view key) {
  for (size_t i = 0; i < size_; ++i) {
    if ((i < first_.size() ? first_[i] : rest_[i - first_.size()]) == key) return false;
  }
  if (size_ < first_.size()) {
    first_[size_] = key;
  } else {
    rest_.push_back(key);
  }
  ++size_;
  return true;
}

Status JsonReader::ReadKey(SeenKeys& seen, std::string_view& key) {
  if (Peek() != JsonKind::kString) return Unexpected("a member name");
  NEREID_ASSIGN_OR_RETURN(key, ReadString());
  if (!seen.Insert(key)) return ErrorHere("member '", key, "' is given twice");
  if (seen.size() > kMaxMembers) return ErrorHere("more than ", kMaxMembers, " members");
  if (!ConsumeIf(':')) return Unexpected("':'");
  return Status::Ok();
}

Result<std::string_view> JsonReader::ReadString() {
  NEREID_ASSIGN_OR_RETURN(const std::string_view text, ReadTransientString());
  return text.data() == unescaped_.data() ? Keep(text) : text;
}

std::string_view JsonReader::Keep(std::string_view text) {
  constexpr size_t kBlockBytes = 4096;
  if (text.size() > kept_left_) {
    kept_left_ = std::max(text.size(), kBlockBytes);
    kept_blocks_.emplace_back(new char[kept_left_]);
    kept_end_ = kept_blocks_.back().get();
  }
  const std::string_view kept(kept_end_, text.copy(kept_end_, text.size()));
  kept_end_ += text.size();
  kept_left_ -= text.size();
  return kept;
}

Result<std::string_view> JsonReader::ReadTransientString() {
  if (!ConsumeIf('"')) return Unexpected("a string");
  const char* const start = cursor_;
  const char* p = SkipPlainText(start, end_);
  bool has_escapes = false;
  bool is_ascii = true;
  for (; p != end_ && *p != '"'; ++p) {
    const unsigned char c = *p;
    if (c == '\\') {
      has_escapes = true;
      if (++p == end_) break;
      p = SkipPlainText(p + 1, end_) - 1;
    } else if (c < ' ') {
      cursor_ = p;
      return ErrorHere("control character in a string");
    } else if (c >= 0x80) {
      is_ascii = false;
    }
  }
  if (p == end_) {
    cursor_ = end_;
    return ErrorHere("unterminated string");
  }
  const std::string_view raw(start, p - start);
  if (!is_ascii) {
    if (const size_t valid = ValidUtf8Prefix(raw); valid != raw.size()) {
      cursor_ = start + valid;
      return ErrorHere("a string is not UTF-8");
    }
  }
  cursor_ = p + 1;
  if (!has_escapes) return raw;
  unescaped_.clear();
  NEREID_RETURN_IF_ERROR(Unescape(raw, unescaped_));
  return std::string_view(unescaped_);
}

Result<uint32_t> JsonReader::ReadHexQuad(const char* at, const char* end) {
  uint32_t value = 0;
  if (end - at < 4) return ErrorHere("incomplete \\u escape");
  const auto [stop, error] = std::from_chars(at, at + 4, value, 16);
  if (error != std::errc() || stop != at + 4) return ErrorHere("malformed \\u escape");
  return value;
}

Status JsonReader::Unescape(std::string_view raw, std::string& out) {
  const char* const end = raw.data() + raw.size();
  out.reserve(raw.size());
  for (const char* p = raw.data(); p != end; ++p) {
    if (*p != '\\') {
      out += *p;
      continue;
    }
    switch (*++p) {
      case '"':
        out += '"';
        break;
      case '\\':
        out += '\\';
        break;
      case '/':
        out += '/';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'u': {
        NEREID_ASSIGN_OR_RETURN(uint32_t code, ReadHexQuad(p + 1, end));
        p += 4;
        if (code >= 0xdc00 && code <= 0xdfff) return ErrorHere("lone surrogate in a \\u escape");
        if (code >= 0xd800 && code <= 0xdbff) {
          if (end - p < 7 || p[1] != '\\' || p[2] != 'u') {
            return ErrorHere("lone surrogate in a \\u escape");
          }
          NEREID_ASSIGN_OR_RETURN(const uint32_t low, ReadHexQuad(p + 3, end));
          if (low < 0xdc00 || low > 0xdfff) return ErrorHere("lone surrogate in a \\u escape");
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
          p += 6;
        }
        AppendUtf8(out, code);
        break;
      }
      default:
        return ErrorHere("unknown escape in a string");
    }
  }
  return Status::Ok();
}

Result<JsonNumber> JsonReader::ReadNumber() {
  SkipBlanks();
  bool is_integer = false;
  const char* const stop = ScanNumber(cursor_, end_, is_integer);
  if (stop == nullptr) return Unexpected("a number");
  const JsonNumber number{{cursor_, static_cast<size_t>(stop - cursor_)}, is_integer};
  cursor_ = stop;
  return number;
}

Result<int64_t> JsonReader::ReadInt64() {
  if (Peek() != JsonKind::kNumber) return Unexpected("an integer");
  NEREID_ASSIGN_OR_RETURN(const JsonNumber number, ReadNumber());
  int64_t value = 0;
  const char* const end = number.text.data() + number.text.size();
  const auto result = std::from_chars(number.text.data(), end, value);
  if (!number.is_integer || result.ec != std::errc() || result.ptr != end) {
    return ErrorHere("expected a 64-bit integer, got ", number.text);
  }
  return value;
}

Result<uint64_t> JsonReader::ReadUint64() {
  if (Peek() != JsonKind::kNumber) return Unexpected("a non-negative integer");
  NEREID_ASSIGN_OR_RETURN(const JsonNumber number, ReadNumber());
  uint64_t value = 0;
  const char* const end = number.text.data() + number.text.size();
  const auto result = std::from_chars(number.text.data(), end, value);
  if (!number.is_integer || result.ec != std::errc() || result.ptr != end) {
    return ErrorHere("expected a non-negative 64-bit integer, got ", number.text);
  }
  return value;
}

Result<double> JsonReader::ReadDouble() {
  if (Peek() != JsonKind::kNumber) return Unexpected("a number");
  NEREID_ASSIGN_OR_RETURN(const JsonNumber number, ReadNumber());
  const double value = std::strtod(std::string(number.text).c_str(), nullptr);
  if (!std::isfinite(value)) return ErrorHere(number.text, " does not fit a double");
  return value;
}

bool JsonReader::ConsumeLiteral(std::string_view word) {
  if (std::string_view(cursor_, end_ - cursor_).substr(0, word.size()) != word) return false;
  cursor_ += word.size();
  return true;
}

Result<bool> JsonReader::ReadBool() {
  SkipBlanks();
  if (ConsumeLiteral("true")) return true;
  if (ConsumeLiteral("false")) return false;
  return Unexpected("a boolean");
}

Status JsonReader::SkipValue() {
  switch (Peek()) {
    case JsonKind::kObject:
      return ReadObject([this](std::string_view) { return SkipValue(); });
    case JsonKind::kArray:
      return ReadArray([this] { return SkipValue(); });
    case JsonKind::kString:
      return ReadTransientString().status();
    case JsonKind::kNumber:
      return ReadNumber().status();
    case JsonKind::kBool:
      return ReadBool().status();
    case JsonKind::kNull:
      ConsumeLiteral("null");
      return Status::Ok();
    default:
      return Unexpected("a value");
  }
}

Status JsonReader::ExpectEnd() {
  SkipBlanks();
  if (cursor_ != end_) return ErrorHere("unexpected text after the value");
  return Status::Ok();
}

}  // namespace nereid::http
