// See lexer.h.
#include "backends/tokenizer/lib/chat/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "backends/tokenizer/lib/text/unicode.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer::jinja {
namespace {

bool IsSpace(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1C' && c <= '\x1F');
}
bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// Line breaks of all systems become "\n", and one at the end of the template is dropped.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// The text of a string literal without its quotes, by Python's rules of escapes.
class Unescaper {
 public:
  explicit Unescaper(std::string_view text) : text_(text) {}

  Result<std::string> Run() {
    while (at_ < text_.size()) {
      if (text_[at_] != '\\' || at_ + 1 == text_.size()) {
        out_ += text_[at_++];
        continue;
      }
      const char kind = text_[at_ + 1];
      at_ += 2;
      NEREID_RETURN_IF_ERROR(AppendEscape(kind));
    }
    return std::move(out_);
  }

 private:
  Status AppendEscape(char kind) {
    constexpr std::string_view kKinds = "\\'\"abfnrtv";
    constexpr std::string_view kChars = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t index = kKinds.find(kind); index != std::string_view::npos) {
      out_ += kChars[index];
    } else if (kind == '\n') {
      // a continued line
    } else if (kind == 'x' || kind == 'u' || kind == 'U') {
      return AppendHex(kind == 'x' ? 2 : kind == 'u' ? 4 : 8);
    } else if (kind >= '0' && kind <= '7') {
      char32_t code = static_cast<char32_t>(kind - '0');
      for (int i = 0; i < 2 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i) {
        code = code * 8 + static_cast<char32_t>(text_[at_++] - '0');
      }
      AppendUtf8(code, out_);
    } else if (kind == 'N') {
      return UnsupportedError("the escape \\N{...} in a string literal is not supported");
    } else {
      out_ += '\\';
      out_ += kind;
    }
    return {};
  }

  Status AppendHex(size_t num_digits) {
    uint32_t code = 0;
    const std::string_view digits = text_.substr(at_, num_digits);
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() < num_digits || end.ptr != digits.data() + num_digits || code > 0x10FFFF ||
        (code >= 0xD800 && code < 0xE000)) {
      return InvalidArgError("a string literal has the malformed escape '", digits, "'");
    }
    at_ += num_digits;
    AppendUtf8(code, out_);
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)) {}

  Result<std::vector<Token>> Run() {
    if (!IsValidUtf8(source_)) return InvalidArgError("the template is not valid UTF-8");
    while (at_ < source_.size()) NEREID_RETURN_IF_ERROR(ReadData());
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  static constexpr std::string_view kBlock = "{%", kVariable = "{{", kComment = "{#";

  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  template <typename... Args>
  Status Error(const Args&... args) const {
    return InvalidArgError("line ", line_, ": ", args...);
  }

  // Moves to `to` and counts the lines.
  void MoveTo(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + to, '\n'));
    at_ = to;
  }
  void SkipSpaces() {
    size_t end = at_;
    while (end < source_.size() && IsSpace(source_[end])) ++end;
    MoveTo(end);
  }
  // The sign of white space control at `at`; 0 if there is none.
  char SignAt(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  size_t FindTag() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' &&
          (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) {
        return i;
      }
    }
    return source_.size();
  }

  // Adds the text from at_ to `end`, before a tag with this sign.
  void AddData(size_t end, char sign, bool is_block) {
    std::string_view data = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      while (!data.empty() && IsSpace(data.back())) data.remove_suffix(1);
    } else if (sign != '+' && is_block) {
      const size_t line_begin = data.rfind('\n') + 1;  // npos + 1 is 0
      const bool is_line_start = line_begin > 0 || is_at_line_start_;
      if (is_line_start &&
          std::all_of(data.begin() + static_cast<ptrdiff_t>(line_begin), data.end(), IsSpace)) {
        data = data.substr(0, line_begin);
      }
    }
    if (!data.empty()) Add(TokenKind::kData, std::string(data));
    MoveTo(end);
  }

  Status ReadData() {
    const size_t tag = FindTag();
    if (tag == source_.size()) {
      Add(TokenKind::kData, source_.substr(at_));
      MoveTo(tag);
      return {};
    }
    const char sign = SignAt(tag + 2);
    const std::string_view opening = std::string_view(source_).substr(tag, 2);
    AddData(tag, sign, opening != kVariable);
    const size_t body = tag + (sign == '\0' ? 2 : 3);
    if (opening == kComment) return SkipComment(body);
    if (opening == kBlock) {
      if (const std::optional<size_t> raw = RawBody(body)) return ReadRaw(*raw);
    }
    Add(opening == kBlock ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
    MoveTo(body);
    return ReadTag(opening == kBlock);
  }

  // Consumes what ends a tag, after its closing characters.
  void EndTag(size_t end, char sign, bool is_block) {
    MoveTo(end);
    is_at_line_start_ = false;
    if (sign == '-') {
      const size_t begin = at_;
      SkipSpaces();
      is_at_line_start_ = at_ > begin && source_[at_ - 1] == '\n';
    } else if (is_block && sign != '+' && at_ < source_.size() && source_[at_] == '\n') {
      MoveTo(at_ + 1);
      is_at_line_start_ = true;
    }
  }

  Status SkipComment(size_t body) {
    const size_t end = source_.find("#}", body);
    if (end == std::string::npos) return Error("missing end of comment tag");
    const char sign = end > body ? SignAt(end - 1) : '\0';
    EndTag(end + 2, sign, /*is_block=*/true);
    return {};
  }

  // If the block whose content begins at `body` is "raw", returns where its content begins.
  std::optional<size_t> RawBody(size_t body) const {
    size_t at = SkipSpacesFrom(body);
    if (source_.compare(at, 3, "raw") != 0) return std::nullopt;
    at = SkipSpacesFrom(at + 3);
    const bool has_sign = at < source_.size() && source_[at] == '-';
    if (source_.compare(at + (has_sign ? 1 : 0), 2, "%}") != 0) return std::nullopt;
    at += has_sign ? 3 : 2;
    return has_sign ? SkipSpacesFrom(at) : at;
  }
  size_t SkipSpacesFrom(size_t at) const {
    while (at < source_.size() && IsSpace(source_[at])) ++at;
    return at;
  }

  Status ReadRaw(size_t content) {
    MoveTo(content);
    is_at_line_start_ = false;
    for (size_t open = source_.find("{%", content); open != std::string::npos;
         open = source_.find("{%", open + 2)) {
      const char begin_sign = SignAt(open + 2);
      size_t at = SkipSpacesFrom(open + (begin_sign == '\0' ? 2 : 3));
      if (source_.compare(at, 6, "endraw") != 0) continue;
      at = SkipSpacesFrom(at + 6);
      const char end_sign = SignAt(at);
      if (end_sign != '\0') ++at;
      if (source_.compare(at, 2, "%}") != 0) continue;
      AddData(open, begin_sign, /*is_block=*/true);
      EndTag(at + 2, end_sign, /*is_block=*/true);
      return {};
    }
    return Error("missing end of raw directive");
  }

  Status ReadTag(bool is_block) {
    std::vector<char> open_brackets;
    while (true) {
      SkipSpaces();
      if (at_ == source_.size()) return Error("unexpected end of template inside a tag");
      if (open_brackets.empty() && TakeTagEnd(is_block)) return {};
      const char c = source_[at_];
      if (IsDigit(c)) {
        NEREID_RETURN_IF_ERROR(ReadNumber());
      } else if (c == '"' || c == '\'') {
        NEREID_RETURN_IF_ERROR(ReadText(c));
      } else if (c == '_' || static_cast<unsigned char>(c) >= 0x80 || std::isalpha(c)) {
        NEREID_RETURN_IF_ERROR(ReadName());
      } else {
        NEREID_RETURN_IF_ERROR(ReadOperator(open_brackets));
      }
    }
  }

  bool TakeTagEnd(bool is_block) {
    const char sign = is_block || source_[at_] == '-' ? SignAt(at_) : '\0';
    const size_t close = at_ + (sign == '\0' ? 0 : 1);
    if (source_.compare(close, 2, is_block ? "%}" : "}}") != 0) return false;
    Add(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
    EndTag(close + 2, sign, is_block);
    return true;
  }

  Status ReadName() {
    size_t end = at_;
    while (end < source_.size()) {
      const Utf8Char c = CharAt(source_, end);
      if (!IsWordChar(c.code)) break;
      end += c.size;
    }
    if (end == at_) return Error("unexpected character in a tag");
    Add(TokenKind::kName, source_.substr(at_, end - at_));
    at_ = end;
    return {};
  }

  Status ReadText(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Error("a string literal does not end");
    const std::string_view body = std::string_view(source_).substr(at_ + 1, end - at_ - 1);
    Result<std::string> text = Unescaper(body).Run();
    if (!text.ok()) return std::move(text).status().WithContext(StrCat("line ", line_));
    Add(TokenKind::kText, std::move(text).value());
    MoveTo(end + 1);
    return {};
  }

  // The end of a run of digits, between which single underscores may stand.
  size_t DigitsEnd(size_t at, int base) const {
    const auto is_digit = [&](size_t i) {
      if (i >= source_.size()) return false;
      const char c = source_[i];
      return base == 16 ? std::isxdigit(static_cast<unsigned char>(c)) != 0
                        : c >= '0' && c < '0' + base;
    };
    while (is_digit(at) || (at < source_.size() && source_[at] == '_' && is_digit(at + 1))) ++at;
    return at;
  }

  Status ReadNumber() {
    const char prefix = source_[at_] == '0' && at_ + 1 < source_.size()
                            ? static_cast<char>(std::tolower(source_[at_ + 1]))
                            : '\0';
    const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    if (base != 10) return AddInteger(at_ + 2, DigitsEnd(at_ + 2, base), base);
    const size_t integer_end = DigitsEnd(at_, 10);
    size_t end = integer_end;
    // A float never follows a dot: `a.1.2` are two elements.
    const bool follows_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!follows_dot) {
      if (end + 1 < source_.size() && source_[end] == '.' && IsDigit(source_[end + 1])) {
        end = DigitsEnd(end + 1, 10);
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const size_t digits = end + (SignAt(end + 1) == '\0' ? 1 : 2);
        if (digits < source_.size() && IsDigit(source_[digits])) end = DigitsEnd(digits, 10);
      }
    }
    if (end == integer_end) return AddInteger(at_, end, 10);
    std::string digits = WithoutUnderscores(at_, end);
    Add(TokenKind::kFloat, digits);
    tokens_.back().number = std::strtod(digits.c_str(), nullptr);
    at_ = end;
    return {};
  }

  std::string WithoutUnderscores(size_t begin, size_t end) const {
    std::string digits = source_.substr(begin, end - begin);
    std::erase(digits, '_');
    return digits;
  }

  Status AddInteger(size_t begin, size_t end, int base) {
    const std::string digits = WithoutUnderscores(begin, end);
    int64_t value = 0;
    const char* const last = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), last, value, base);
    if (parsed.ec != std::errc() || parsed.ptr != last) {
      return Error("the integer '", source_.substr(at_, end - at_),
                   "' is malformed or exceeds 64 bits");
    }
    Add(TokenKind::kInteger, digits);
    tokens_.back().integer = value;
    at_ = end;
    return {};
  }

  Status ReadOperator(std::vector<char>& open_brackets) {
    constexpr std::array<std::string_view, 6> kDouble = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
    const std::string_view pair = std::string_view(source_).substr(at_, 2);
    const bool is_double = std::find(kDouble.begin(), kDouble.end(), pair) != kDouble.end();
    const char c = source_[at_];
    if (!is_double && kSingle.find(c) == std::string_view::npos) {
      return Error("unexpected character '", c, "'");
    }
    if (c == '(' || c == '[' || c == '{') {
      open_brackets.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty() || open_brackets.back() != c) {
        return Error("unexpected '", c, "'");
      }
      open_brackets.pop_back();
    }
    Add(TokenKind::kOperator, std::string(is_double ? pair : pair.substr(0, 1)));
    at_ += is_double ? 2 : 1;
    return {};
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool is_at_line_start_ = true;  // the text at at_ begins a line, after what was dropped
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(source).Run();
}

}  // namespace nereid::tokenizer::jinja
