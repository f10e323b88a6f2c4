// See json_text.h.
#include "backends/llm_core/grammar/json_text.h"

#include <algorithm>

#include "backends/llm_core/grammar/schema_number.h"

namespace nereid::llm::grammar {
namespace {

RegexId Quoted(RegexPool& pool, RegexId inside) {
  const RegexId quote = pool.Literal("\"");
  return pool.Concat({quote, inside, quote});
}

uint32_t ReadHex4(std::string_view text, size_t pos) {
  uint32_t value = 0;
  for (size_t i = pos; i < pos + 4 && i < text.size(); ++i) {
    const char c = text[i];
    value = value * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
  }
  return value;
}

// The text of a well-formed JSON string without its quotes.
std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 >= text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    if (c != 'u') {
      const std::string_view letters = "bfnrt", codes = "\b\f\n\r\t";
      const size_t index = letters.find(c);
      out += index == std::string_view::npos ? c : codes[index];
      continue;
    }
    uint32_t code_point = ReadHex4(text, i + 1);
    i += 4;
    if (IsHighSurrogate(code_point)) {
      code_point = FromSurrogates(code_point, ReadHex4(text, i + 3));
      i += 6;
    }
    AppendUtf8(code_point, out);
  }
  return out;
}

}  // namespace

RegexId SpellJsonString(RegexPool& pool, std::string_view text) {
  return Quoted(pool, SpellText(pool, text, Spelling::kJson));
}

RegexId AnyJsonString(RegexPool& pool, Spelling spelling) {
  const RegexId any = SpellSet(pool, CodePointSet::All(), spelling);
  return Quoted(pool, pool.Repeat(any, 0, RegexPool::kUnlimited));
}

RegexId SpellJsonScalar(RegexPool& pool, std::string_view spelled) {
  spelled.remove_prefix(std::min(spelled.find_first_not_of(" \t\n\r"), spelled.size()));
  if (spelled.size() >= 2 && spelled[0] == '"') {
    return SpellJsonString(pool, Unescaped(spelled.substr(1, spelled.size() - 2)));
  }
  const bool is_negative = spelled.starts_with('-');
  const std::string_view digits = spelled.substr(is_negative ? 1 : 0);
  if (digits.empty() || digits[0] < '0' || digits[0] > '9') return pool.Literal(spelled);
  Decimal number{is_negative, std::string(digits.substr(0, digits.find('.'))), ""};
  if (number.integer.size() < digits.size()) {
    number.fraction = digits.substr(number.integer.size() + 1);
    number.fraction.erase(number.fraction.find_last_not_of('0') + 1);
  }
  const RegexId own = SpellNumber(pool, number);
  if (!number.IsZero()) return own;
  number.is_negative = !is_negative;
  return pool.Union({own, SpellNumber(pool, number)});
}

RegexId AnyJsonInteger(RegexPool& pool) {
  const RegexId digits =
      pool.Repeat(pool.Bytes(ByteSet::Range('0', '9')), 0, RegexPool::kUnlimited);
  const RegexId positive = pool.Concat(pool.Bytes(ByteSet::Range('1', '9')), digits);
  return pool.Concat(pool.Optional(pool.Literal("-")), pool.Union({pool.Literal("0"), positive}));
}

RegexId AnyJsonNumber(RegexPool& pool) {
  const RegexId digits =
      pool.Repeat(pool.Bytes(ByteSet::Range('0', '9')), 1, RegexPool::kUnlimited);
  ByteSet exponent, sign;
  exponent.Add('e'), exponent.Add('E'), sign.Add('+'), sign.Add('-');
  return pool.Concat({AnyJsonInteger(pool), pool.Optional(pool.Concat(pool.Literal("."), digits)),
                      pool.Optional(pool.Concat(
                          {pool.Bytes(exponent), pool.Optional(pool.Bytes(sign)), digits}))});
}

}  // namespace nereid::llm::grammar
