// See text_methods.h.
#include "backends/tokenizer/lib/chat/jinja/text_methods.h"

#include <locale.h>
#include <wctype.h>

#include <algorithm>
#include <functional>
#include <string>

#include "backends/tokenizer/lib/chat/jinja/operators.h"
#include "backends/tokenizer/lib/text/char_traits.h"
#include "backends/tokenizer/lib/text/unicode.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer::jinja {
namespace {

bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

void AppendUpper(char32_t c, std::string& out) {
  static const locale_t kLocale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (c == 0xDF) {
    out += "SS";
  } else if (c < 0x80 || kLocale == nullptr) {
    AppendUtf8(c >= 'a' && c <= 'z' ? c - 32 : c, out);
  } else {
    AppendUtf8(static_cast<char32_t>(towupper_l(static_cast<wint_t>(c), kLocale)), out);
  }
}

std::string UpperOf(char32_t c) {
  std::string out;
  AppendUpper(c, out);
  return out;
}
std::string LowerOf(char32_t c) {
  std::string out;
  AppendLowercase(c, out);
  return out;
}

bool IsUpperCode(char32_t c) {
  const CharClass char_class = UnicodeTables::Get().ClassOf(c);
  return char_class == CharClass::kLu || char_class == CharClass::kLt;
}
bool IsLowerCode(char32_t c) {
  return UnicodeTables::Get().ClassOf(c) == CharClass::kLl;
}
bool IsCased(char32_t c) {
  return IsUpperCode(c) || IsLowerCode(c);
}

bool AllOf(std::string_view text, const std::function<bool(char32_t)>& has_property) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = CharAt(text, at);
    if (!has_property(c.code)) return false;
    at += c.size;
  }
  return !text.empty();
}

// Whether all cased characters satisfy `has_case` and there is one.
bool AllCased(std::string_view text, bool (*has_case)(char32_t)) {
  bool has_cased = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = CharAt(text, at);
    if (IsCased(c.code)) {
      if (!has_case(c.code)) return false;
      has_cased = true;
    }
    at += c.size;
  }
  return has_cased;
}

// The beginning of the character that ends at `end`.
size_t CharBefore(std::string_view text, size_t end) {
  do {
    --end;
  } while (IsContinuation(text[end]));
  return end;
}

std::vector<MarkedText> SplitAtSpaces(const MarkedText& text, int64_t max_splits) {
  std::vector<MarkedText> parts;
  const std::string& bytes = text.bytes();
  size_t at = 0;
  const auto skip = [&](bool is_space) {
    while (at < bytes.size()) {
      const Utf8Char c = CharAt(bytes, at);
      if (IsSpaceCode(c.code) != is_space) break;
      at += c.size;
    }
  };
  skip(true);
  while (at < bytes.size()) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      parts.push_back(text.Slice(at, bytes.size()));
      break;
    }
    const size_t begin = at;
    skip(false);
    parts.push_back(text.Slice(begin, at));
    skip(true);
  }
  return parts;
}

std::vector<MarkedText> SplitAtSpacesFromRight(const MarkedText& text, int64_t max_splits) {
  std::vector<MarkedText> parts;
  const std::string& bytes = text.bytes();
  size_t end = bytes.size();
  const auto skip = [&](bool is_space) {
    while (end > 0) {
      const size_t begin = CharBefore(bytes, end);
      if (IsSpaceCode(CharAt(bytes, begin).code) != is_space) break;
      end = begin;
    }
  };
  skip(true);
  while (end > 0) {
    if (static_cast<int64_t>(parts.size()) == max_splits) {
      parts.push_back(text.Slice(0, end));
      break;
    }
    const size_t part_end = end;
    skip(false);
    parts.push_back(text.Slice(end, part_end));
    skip(true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

bool IsSpaceCode(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

MarkedText Strip(const MarkedText& text, const std::optional<MarkedText>& chars, Side side) {
  const std::string& bytes = text.bytes();
  const auto is_stripped = [&](size_t begin, size_t end) {
    if (!chars.has_value()) return IsSpaceCode(CharAt(bytes, begin).code);
    return chars->bytes().find(bytes.substr(begin, end - begin)) != std::string::npos;
  };
  size_t begin = 0, end = bytes.size();
  while (side != Side::kRight && begin < end) {
    const size_t next = begin + CharAt(bytes, begin).size;
    if (!is_stripped(begin, next)) break;
    begin = next;
  }
  while (side != Side::kLeft && end > begin) {
    const size_t last = CharBefore(bytes, end);
    if (!is_stripped(last, end)) break;
    end = last;
  }
  return text.Slice(begin, end);
}

std::vector<MarkedText> Split(const MarkedText& text, const std::optional<MarkedText>& separator,
                              int64_t max_splits, bool is_from_right) {
  if (!separator.has_value()) {
    return is_from_right && max_splits >= 0 ? SplitAtSpacesFromRight(text, max_splits)
                                            : SplitAtSpaces(text, max_splits);
  }
  const std::string& bytes = text.bytes();
  const std::string& mark = separator->bytes();
  std::vector<MarkedText> parts;
  const auto may_split = [&] {
    return max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits;
  };
  if (!is_from_right) {
    size_t begin = 0;
    for (size_t at; may_split() && (at = bytes.find(mark, begin)) != std::string::npos;) {
      parts.push_back(text.Slice(begin, at));
      begin = at + mark.size();
    }
    parts.push_back(text.Slice(begin, bytes.size()));
    return parts;
  }
  size_t end = bytes.size();
  while (may_split() && end >= mark.size()) {
    const size_t at = bytes.rfind(mark, end - mark.size());
    if (at == std::string::npos) break;
    parts.push_back(text.Slice(at + mark.size(), end));
    end = at;
  }
  parts.push_back(text.Slice(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<MarkedText> SplitLines(const MarkedText& text, bool keep_ends) {
  const std::string& bytes = text.bytes();
  std::vector<MarkedText> lines;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char c = CharAt(bytes, at);
    if (!IsLineBreak(c.code)) {
      at += c.size;
      continue;
    }
    const bool is_pair = c.code == U'\r' && at + 1 < bytes.size() && bytes[at + 1] == '\n';
    const size_t end = at + (is_pair ? 2 : c.size);
    lines.push_back(text.Slice(begin, keep_ends ? end : at));
    begin = at = end;
  }
  if (begin < bytes.size()) lines.push_back(text.Slice(begin, bytes.size()));
  return lines;
}

std::optional<MarkedText> Replace(const MarkedText& text, const MarkedText& from,
                                  const MarkedText& to, int64_t count, size_t max_bytes) {
  const std::string& bytes = text.bytes();
  MarkedText out;
  size_t copied = 0, at = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    // An empty text is found before every character and at the end.
    const size_t found = from.empty() ? at : bytes.find(from.bytes(), at);
    if (found == std::string::npos || found > bytes.size()) break;
    out.AppendSlice(text, copied, found);
    out.Append(to);
    if (out.size() > max_bytes) return std::nullopt;
    copied = found + from.size();
    at = from.empty() ? found + (found < bytes.size() ? CharAt(bytes, found).size : 1) : copied;
  }
  out.AppendSlice(text, copied, bytes.size());
  if (out.size() > max_bytes) return std::nullopt;
  return out;
}

MarkedText ChangeCase(const MarkedText& text, Case mode) {
  MarkedText out;
  bool is_word_begin = true;
  const std::string& bytes = text.bytes();
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char c = CharAt(bytes, at);
    bool is_upper = mode == Case::kUpper;
    if (mode == Case::kTitle || mode == Case::kCapitalize) is_upper = is_word_begin;
    if (mode == Case::kSwap) is_upper = IsLowerCode(c.code);
    out.Append(is_upper ? UpperOf(c.code) : LowerOf(c.code), text.IsInput(at));
    is_word_begin = mode == Case::kTitle && !IsCased(c.code);
    at += c.size;
  }
  return out;
}

MarkedText TitleWords(const MarkedText& text) {
  MarkedText out;
  bool is_word_begin = true;
  const std::string& bytes = text.bytes();
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char c = CharAt(bytes, at);
    const bool is_separator = IsSpaceCode(c.code) || c.code == U'-' || c.code == U'(' ||
                              c.code == U'{' || c.code == U'[' || c.code == U'<';
    out.Append(is_word_begin ? UpperOf(c.code) : LowerOf(c.code), text.IsInput(at));
    is_word_begin = is_separator;
    at += c.size;
  }
  return out;
}

bool IsLowerText(std::string_view text) {
  return AllCased(text, IsLowerCode);
}
bool IsUpperText(std::string_view text) {
  return AllCased(text, IsUpperCode);
}

bool IsTitleText(std::string_view text) {
  bool follows_cased = false, has_cased = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = CharAt(text, at);
    if (IsCased(c.code) && IsUpperCode(c.code) == follows_cased) return false;
    follows_cased = IsCased(c.code);
    has_cased = has_cased || follows_cased;
    at += c.size;
  }
  return has_cased;
}

bool IsAlphaText(std::string_view text) {
  return AllOf(text, [](char32_t c) { return (UnicodeTables::Get().Mask(c) & kLetter) != 0; });
}
bool IsDigitText(std::string_view text) {
  return AllOf(text, [](char32_t c) { return UnicodeTables::Get().ClassOf(c) == CharClass::kNd; });
}
bool IsAlnumText(std::string_view text) {
  return AllOf(
      text, [](char32_t c) { return (UnicodeTables::Get().Mask(c) & (kLetter | kNumber)) != 0; });
}
bool IsSpaceText(std::string_view text) {
  return AllOf(text, IsSpaceCode);
}

MarkedText Justify(const MarkedText& text, size_t width, Side side, std::string_view fill) {
  const size_t size = CountChars(text.bytes());
  if (size >= width) return text;
  const size_t missing = width - size;
  const size_t left = side == Side::kRight  ? missing
                      : side == Side::kLeft ? 0
                                            : missing / 2 + (missing & width & 1);
  MarkedText out;
  for (size_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(text);
  for (size_t i = left; i < missing; ++i) out.Append(fill);
  return out;
}

}  // namespace nereid::tokenizer::jinja
