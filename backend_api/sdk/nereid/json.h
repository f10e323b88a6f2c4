/// \file
/// A small JSON value, enough to read a model's configuration and to return a changed one, so that
/// a backend needs no JSON library. Objects keep the order of their members. [any thread; one
/// object, one thread at a time]
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nereid/status.h"

namespace nereid {

class Json {
 public:
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };
  using Member = std::pair<std::string, Json>;

  Json() = default;
  Json(bool value) : kind_(Kind::kBool), text_(value ? "true" : "false") {}    // NOLINT
  Json(int64_t value) : kind_(Kind::kNumber), text_(std::to_string(value)) {}  // NOLINT
  Json(std::string value) : kind_(Kind::kString), text_(std::move(value)) {}   // NOLINT
  Json(const char* value) : Json(std::string(value)) {}                        // NOLINT
  static Json Array() { return Json(Kind::kArray); }
  static Json Object() { return Json(Kind::kObject); }

  /// INVALID_ARG with the byte offset of the first character that is not valid JSON.
  static Result<Json> Parse(std::string_view text);
  std::string Dump() const {
    std::string text;
    DumpTo(text);
    return text;
  }

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_string() const { return kind_ == Kind::kString; }

  /// Reading never fails: a value that is absent or of another kind reads as null or as the
  /// default. A path is therefore one expression:
  /// config["model_transaction_policy"]["decoupled"].AsBool().
  const Json& operator[](std::string_view key) const {
    for (const Member& member : members_) {
      if (member.first == key) return member.second;
    }
    static const Json kNull;
    return kNull;
  }
  bool AsBool(bool default_value = false) const {
    return kind_ == Kind::kBool ? text_ == "true" : default_value;
  }
  /// Also reads a string of digits: protobuf writes 64-bit integers in this form.
  int64_t AsInt(int64_t default_value = 0) const;
  double AsDouble(double default_value = 0) const;
  const std::string& AsString() const {
    static const std::string kEmpty;
    return kind_ == Kind::kString ? text_ : kEmpty;
  }
  const std::vector<Json>& elements() const { return elements_; }
  const std::vector<Member>& members() const { return members_; }

  /// The member `key`, added as null if absent. A value that is no object becomes an empty object.
  Json& Mutable(std::string_view key) {
    if (kind_ != Kind::kObject) *this = Object();
    for (Member& member : members_) {
      if (member.first == key) return member.second;
    }
    return members_.emplace_back(std::string(key), Json()).second;
  }
  void Set(std::string_view key, Json value) { Mutable(key) = std::move(value); }
  void Append(Json element) {
    if (kind_ != Kind::kArray) *this = Array();
    elements_.push_back(std::move(element));
  }
  std::vector<Json>& mutable_elements() { return elements_; }

 private:
  class Reader;
  explicit Json(Kind kind) : kind_(kind) {}
  void DumpTo(std::string& text) const;

  Kind kind_ = Kind::kNull;
  std::string text_;  ///< a string's value; a number's or bool's spelling
  std::vector<Json> elements_;
  std::vector<Member> members_;
};

// ---- parser and writer

/// Recursive-descent parser. The depth is bounded, so that no input exhausts the stack.
class Json::Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<Json> ReadDocument() {
    Json value;
    if (!ReadValue(value, /*depth=*/0)) return ErrorHere();
    SkipWhitespace();
    if (at_ != text_.size()) return ErrorHere();
    return value;
  }

 private:
  static constexpr int kMaxDepth = 100;

  Status ErrorHere() const {
    if (is_too_deep_)
      return InvalidArgError("JSON: more than ", kMaxDepth, " levels at byte ", at_);
    return InvalidArgError("JSON: unexpected text at byte ", at_);
  }

  void SkipWhitespace() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }
  bool Take(char expected) {
    SkipWhitespace();
    if (at_ == text_.size() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  bool ReadValue(Json& value, int depth) {
    SkipWhitespace();
    is_too_deep_ = depth > kMaxDepth;
    if (at_ == text_.size() || is_too_deep_) return false;
    switch (text_[at_]) {
      case '{':
        return ReadObject(value, depth);
      case '[':
        return ReadArray(value, depth);
      case '"':
        value = Json(std::string());
        return ReadString(value.text_);
      case 't':
        value = Json(true);
        return TakeWord("true");
      case 'f':
        value = Json(false);
        return TakeWord("false");
      case 'n':
        value = Json();
        return TakeWord("null");
      default:
        return ReadNumber(value);
    }
  }

  bool ReadObject(Json& value, int depth) {
    value = Object();
    ++at_;
    if (Take('}')) return true;
    do {
      SkipWhitespace();
      Member& member = value.members_.emplace_back();
      if (at_ == text_.size() || text_[at_] != '"' || !ReadString(member.first)) return false;
      if (!Take(':') || !ReadValue(member.second, depth + 1)) return false;
    } while (Take(','));
    return Take('}');
  }

  bool ReadArray(Json& value, int depth) {
    value = Array();
    ++at_;
    if (Take(']')) return true;
    do {
      if (!ReadValue(value.elements_.emplace_back(), depth + 1)) return false;
    } while (Take(','));
    return Take(']');
  }

  bool ReadNumber(Json& value) {
    const size_t begin = at_;
    while (at_ < text_.size() && std::string_view("+-.0123456789eE").find(text_[at_]) != text_.npos)
      ++at_;
    const std::string spelling(text_.substr(begin, at_ - begin));
    double parsed = 0;
    const char* const end = spelling.data() + spelling.size();
    const auto [stop, error] = std::from_chars(spelling.data(), end, parsed);
    if (spelling.empty() || stop != end || error == std::errc::invalid_argument) return false;
    value = Json(Kind::kNumber);
    value.text_ = spelling;
    return true;
  }

  bool ReadString(std::string& value) {
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c != '\\') {
        value += c;
      } else if (!ReadEscape(value)) {
        return false;
      }
    }
    return false;
  }

  bool ReadEscape(std::string& value) {
    if (++at_ == text_.size()) return false;
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kUnescaped = "\"\\/\b\f\n\r\t";
    if (const size_t index = kLetters.find(text_[at_]); index != kLetters.npos) {
      value += kUnescaped[index];
      return true;
    }
    uint32_t code = 0;
    if (text_[at_] != 'u' || !ReadHex4(code)) return false;
    if (code >= 0xd800 && code < 0xdc00) {  // the first half of a surrogate pair
      uint32_t low = 0;
      if (!text_.substr(at_ + 1).starts_with("\\u")) return false;
      at_ += 2;
      if (!ReadHex4(low) || low < 0xdc00 || low > 0xdfff) return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    AppendUtf8(code, value);
    return true;
  }

  /// Leaves at_ on the last digit.
  bool ReadHex4(uint32_t& code) {
    if (text_.size() - at_ < 5) return false;
    const char* const begin = text_.data() + at_ + 1;
    const auto [stop, error] = std::from_chars(begin, begin + 4, code, 16);
    at_ += 4;
    return error == std::errc() && stop == begin + 4;
  }

  static void AppendUtf8(uint32_t code, std::string& value) {
    if (code < 0x80) {
      value += static_cast<char>(code);
    } else if (code < 0x800) {
      value += static_cast<char>(0xc0 | code >> 6);
      value += static_cast<char>(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      value += static_cast<char>(0xe0 | code >> 12);
      value += static_cast<char>(0x80 | (code >> 6 & 0x3f));
      value += static_cast<char>(0x80 | (code & 0x3f));
    } else {
      value += static_cast<char>(0xf0 | code >> 18);
      value += static_cast<char>(0x80 | (code >> 12 & 0x3f));
      value += static_cast<char>(0x80 | (code >> 6 & 0x3f));
      value += static_cast<char>(0x80 | (code & 0x3f));
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  bool is_too_deep_ = false;
};

inline Result<Json> Json::Parse(std::string_view text) {
  return Reader(text).ReadDocument();
}

inline int64_t Json::AsInt(int64_t default_value) const {
  if (kind_ != Kind::kNumber && kind_ != Kind::kString) return default_value;
  int64_t value = 0;
  const char* const end = text_.data() + text_.size();
  const auto [stop, error] = std::from_chars(text_.data(), end, value);
  return error == std::errc() && stop == end && !text_.empty() ? value : default_value;
}

inline double Json::AsDouble(double default_value) const {
  double value = 0;
  const char* const end = text_.data() + text_.size();
  const auto [stop, error] = std::from_chars(text_.data(), end, value);
  const bool is_number = kind_ == Kind::kNumber && error == std::errc() && stop == end;
  return is_number ? value : default_value;
}

namespace internal {
inline void DumpString(std::string_view value, std::string& text) {
  constexpr char kHex[] = "0123456789abcdef";
  text += '"';
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (byte < 0x20) {
      text += "\\u00";
      text += kHex[byte >> 4];
      text += kHex[byte & 15];
    } else {
      text += c;
    }
  }
  text += '"';
}
}  // namespace internal

inline void Json::DumpTo(std::string& text) const {
  switch (kind_) {
    case Kind::kNull:
      text += "null";
      return;
    case Kind::kBool:
    case Kind::kNumber:
      text += text_;
      return;
    case Kind::kString:
      internal::DumpString(text_, text);
      return;
    case Kind::kArray:
      text += '[';
      for (size_t i = 0; i < elements_.size(); ++i) {
        if (i > 0) text += ',';
        elements_[i].DumpTo(text);
      }
      text += ']';
      return;
    case Kind::kObject:
      text += '{';
      for (size_t i = 0; i < members_.size(); ++i) {
        if (i > 0) text += ',';
        internal::DumpString(members_[i].first, text);
        text += ':';
        members_[i].second.DumpTo(text);
      }
      text += '}';
      return;
  }
}

}  // namespace nereid
