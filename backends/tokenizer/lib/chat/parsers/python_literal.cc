// See python_literal.h.
#include "backends/tokenizer/lib/chat/parsers/python_literal.h"

#include "backends/tokenizer/lib/chat/parsers/json_text.h"
#include "backends/tokenizer/lib/text/utf8.h"
#include "base/json_reader.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr int kMaxPythonDepth = 1000;

bool IsNameByte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_';
}

class LiteralReader {
 public:
  LiteralReader(std::string_view text, std::string& json) : text_(text), json_(json) {}

  bool ReadWhole() {
    SkipSpace();
    if (!ReadValue(0)) return false;
    SkipSpace();
    return position_ == text_.size();
  }

  bool ReadArguments() {
    json_ += '{';
    SkipSpace();
    for (bool is_first = true; position_ < text_.size(); is_first = false) {
      const std::string_view name = ReadName();
      SkipSpace();
      if (name.empty() || !Skip('=')) return false;
      if (!is_first) json_ += ", ";
      json_ += JsonString(name);
      json_ += ": ";
      SkipSpace();
      if (!ReadValue(0)) return false;
      SkipSpace();
      if (position_ < text_.size() && !Skip(',')) return false;
      SkipSpace();
    }
    json_ += '}';
    return true;
  }

 private:
  void SkipSpace() { position_ += CountSpace(text_.substr(position_)); }
  char Peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  bool Skip(char byte) {
    if (Peek() != byte) return false;
    ++position_;
    return true;
  }

  std::string_view ReadName() {
    const size_t begin = position_;
    while (position_ < text_.size() && IsNameByte(text_[position_])) ++position_;
    return text_.substr(begin, position_ - begin);
  }

  bool ReadValue(int depth) {
    if (depth == kMaxPythonDepth) return false;
    switch (Peek()) {
      case '"':
      case '\'':
        return ReadString();
      case '[':
        return ReadList(']', depth);
      case '(':
        return ReadList(')', depth);
      case '{':
        return ReadDict(depth);
      default:
        return ReadWord();
    }
  }

  bool ReadList(char close, int depth) {
    ++position_;
    json_ += '[';
    SkipSpace();
    for (bool is_first = true; !Skip(close); is_first = false) {
      if (!is_first) json_ += ", ";
      if (!ReadValue(depth + 1)) return false;
      SkipSpace();
      if (!Skip(',') && Peek() != close) return false;
      SkipSpace();
    }
    json_ += ']';
    return true;
  }

  bool ReadDict(int depth) {
    ++position_;
    json_ += '{';
    SkipSpace();
    for (bool is_first = true; !Skip('}'); is_first = false) {
      if (!is_first) json_ += ", ";
      if (Peek() != '"' && Peek() != '\'') return false;
      if (!ReadString()) return false;
      SkipSpace();
      if (!Skip(':')) return false;
      json_ += ": ";
      SkipSpace();
      if (!ReadValue(depth + 1)) return false;
      SkipSpace();
      if (!Skip(',') && Peek() != '}') return false;
      SkipSpace();
    }
    json_ += '}';
    return true;
  }

  // A number or the name of a constant.
  bool ReadWord() {
    const size_t begin = position_;
    while (position_ < text_.size() && (IsNameByte(text_[position_]) || text_[position_] == '+' ||
                                        text_[position_] == '-' || text_[position_] == '.')) {
      ++position_;
    }
    const std::string_view word = text_.substr(begin, position_ - begin);
    if (word == "True" || word == "true") {
      json_ += "true";
    } else if (word == "False" || word == "false") {
      json_ += "false";
    } else if (word == "None" || word == "null") {
      json_ += "null";
    } else if (!word.empty() && CheckJson(word, "").ok()) {
      json_ += word;
    } else {
      return false;
    }
    return true;
  }

  bool ReadString() {
    const char quote = text_[position_++];
    std::string value;
    for (; position_ < text_.size(); ++position_) {
      const char byte = text_[position_];
      if (byte == quote) {
        ++position_;
        json_ += JsonString(value);
        return true;
      }
      if (byte != '\\') {
        value += byte;
      } else if (!ReadEscape(value)) {
        return false;
      }
    }
    return false;
  }

  // Reads from the backslash to the last byte of the escape.
  bool ReadEscape(std::string& value) {
    if (++position_ == text_.size()) return false;
    constexpr std::string_view kEscapes = "nrtbfav0\\'\"";
    constexpr std::string_view kValues("\n\r\t\b\f\a\v\0\\'\"", 11);
    const char kind = text_[position_];
    if (const size_t at = kEscapes.find(kind); at != std::string_view::npos) {
      value += kValues[at];
      return true;
    }
    const size_t num_digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (num_digits == 0) {  // Python keeps the backslash of an unknown escape
      if (kind == '\n') return true;
      value += '\\';
      value += kind;
      return true;
    }
    uint32_t code = 0;
    if (!ReadHex(num_digits, code)) return false;
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(position_ + 1, 2) == "\\u") {
      uint32_t low = 0;
      position_ += 2;
      if (!ReadHex(4, low) || low < 0xDC00 || low > 0xDFFF) return false;
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
    AppendUtf8(static_cast<char32_t>(code), value);
    return true;
  }

  // Reads hexadecimal digits behind the current byte, and stays at the last one.
  bool ReadHex(size_t num_digits, uint32_t& code) {
    code = 0;
    for (size_t i = 0; i < num_digits; ++i) {
      if (++position_ >= text_.size()) return false;
      const char digit = text_[position_];
      if (digit >= '0' && digit <= '9') {
        code = code * 16 + static_cast<uint32_t>(digit - '0');
      } else if ((digit | 0x20) >= 'a' && (digit | 0x20) <= 'f') {
        code = code * 16 + static_cast<uint32_t>((digit | 0x20) - 'a' + 10);
      } else {
        return false;
      }
    }
    return true;
  }

  const std::string_view text_;
  std::string& json_;
  size_t position_ = 0;
};

}  // namespace

bool PythonLiteralToJson(std::string_view text, std::string& json) {
  json.clear();
  return LiteralReader(text, json).ReadWhole();
}

bool PythonArgumentsToJson(std::string_view text, std::string& json) {
  json.clear();
  return LiteralReader(text, json).ReadArguments();
}

size_t PythonCallScanner::Scan(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (depth_ == 0) return i;
    const char byte = text[i];
    if (is_escape_) {
      is_escape_ = false;
    } else if (quote_ != 0) {
      if (byte == '\\') is_escape_ = true;
      if (byte == quote_) quote_ = 0;
    } else if (byte == '"' || byte == '\'') {
      quote_ = byte;
    } else if (byte == '(' || byte == '[' || byte == '{') {
      ++depth_;
    } else if (byte == ')' || byte == ']' || byte == '}') {
      --depth_;
    }
  }
  return text.size();
}

}  // namespace nereid::tokenizer::parsers
