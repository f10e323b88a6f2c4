// See schema_number.h.
#include "backends/llm_core/grammar/schema_number.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "backends/llm_core/grammar/json_text.h"

namespace nereid::llm::grammar {
namespace {

constexpr int kMaxDigits = 300;

RegexId Digits(RegexPool& pool, char first, char last) {
  return first > last
             ? RegexPool::kNothing
             : pool.Bytes(ByteSet::Range(static_cast<uint8_t>(first), static_cast<uint8_t>(last)));
}
RegexId AnyDigits(RegexPool& pool, int min, int max) {
  return pool.Repeat(Digits(pool, '0', '9'), min, max);
}
RegexId AnyFraction(RegexPool& pool) {
  return pool.Optional(pool.Concat(pool.Literal("."), AnyDigits(pool, 1, RegexPool::kUnlimited)));
}
RegexId Zeros(RegexPool& pool, int min) {
  return pool.Repeat(pool.Literal("0"), min, RegexPool::kUnlimited);
}
RegexId SomeMore(RegexPool& pool) {  // digits that are not all zero
  return pool.Concat(
      {Zeros(pool, 0), Digits(pool, '1', '9'), AnyDigits(pool, 0, RegexPool::kUnlimited)});
}

// Fractions, with their point, of at least or at most that of `bound`.
RegexId FractionAtLeast(RegexPool& pool, const std::string& bound, bool is_exclusive) {
  const RegexId point = pool.Literal(".");
  if (bound.empty()) {
    return is_exclusive ? pool.Concat(point, SomeMore(pool)) : AnyFraction(pool);
  }
  std::vector<RegexId> parts;
  for (size_t i = 0; i < bound.size(); ++i) {
    parts.push_back(pool.Concat({pool.Literal(bound.substr(0, i)),
                                 Digits(pool, static_cast<char>(bound[i] + 1), '9'),
                                 AnyDigits(pool, 0, RegexPool::kUnlimited)}));
  }
  parts.push_back(
      pool.Concat(pool.Literal(bound),
                  is_exclusive ? SomeMore(pool) : AnyDigits(pool, 0, RegexPool::kUnlimited)));
  return pool.Concat(point, pool.Union(std::move(parts)));
}

RegexId FractionAtMost(RegexPool& pool, const std::string& bound, bool is_exclusive) {
  const RegexId point = pool.Literal(".");
  if (bound.empty()) {
    return is_exclusive ? RegexPool::kNothing : pool.Optional(pool.Concat(point, Zeros(pool, 1)));
  }
  std::vector<RegexId> parts;
  for (size_t i = 0; i < bound.size(); ++i) {
    const RegexId same = pool.Literal(bound.substr(0, i));
    parts.push_back(pool.Concat({same, Digits(pool, '0', static_cast<char>(bound[i] - 1)),
                                 AnyDigits(pool, 0, RegexPool::kUnlimited)}));
    if (i > 0) parts.push_back(same);
  }
  if (!is_exclusive) parts.push_back(pool.Concat(pool.Literal(bound), Zeros(pool, 0)));
  return pool.Optional(pool.Concat(point, pool.Union(std::move(parts))));
}

// Unsigned numbers of at least or at most the absolute value of `bound`.
RegexId AtLeast(RegexPool& pool, const NumberRange::Bound& bound) {
  const std::string& digits = bound.value.integer;
  const int size = static_cast<int>(digits.size());
  const RegexId fraction = AnyFraction(pool);
  std::vector<RegexId> parts;
  parts.push_back(pool.Concat(
      {Digits(pool, '1', '9'), AnyDigits(pool, size, RegexPool::kUnlimited), fraction}));
  for (int i = 0; i < size; ++i) {
    parts.push_back(pool.Concat({pool.Literal(digits.substr(0, i)),
                                 Digits(pool, static_cast<char>(digits[i] + 1), '9'),
                                 AnyDigits(pool, size - 1 - i, size - 1 - i), fraction}));
  }
  parts.push_back(pool.Concat(pool.Literal(digits),
                              FractionAtLeast(pool, bound.value.fraction, bound.is_exclusive)));
  return pool.Union(std::move(parts));
}

RegexId AtMost(RegexPool& pool, const NumberRange::Bound& bound) {
  const std::string& digits = bound.value.integer;
  const int size = static_cast<int>(digits.size());
  const RegexId fraction = AnyFraction(pool);
  std::vector<RegexId> parts;
  if (size > 1) parts.push_back(pool.Concat(AnyDigits(pool, 1, size - 1), fraction));
  for (int i = 0; i < size; ++i) {
    parts.push_back(pool.Concat({pool.Literal(digits.substr(0, i)),
                                 Digits(pool, '0', static_cast<char>(digits[i] - 1)),
                                 AnyDigits(pool, size - 1 - i, size - 1 - i), fraction}));
  }
  parts.push_back(pool.Concat(pool.Literal(digits),
                              FractionAtMost(pool, bound.value.fraction, bound.is_exclusive)));
  return pool.Union(std::move(parts));
}

bool IsMultiple(const Decimal& value, const NumberRange::Multiple& multiple) {
  const auto scale = static_cast<size_t>(multiple.scale);
  if (value.fraction.size() > scale) return false;
  const std::string digits =
      value.integer + value.fraction + std::string(scale - value.fraction.size(), '0');
  uint64_t remainder = 0;
  for (const char digit : digits) remainder = (remainder * 10 + (digit - '0')) % multiple.divisor;
  return remainder == 0;
}

bool AbsLess(const Decimal& x, const Decimal& y) {
  if (x.integer.size() != y.integer.size()) return x.integer.size() < y.integer.size();
  if (x.integer != y.integer) return x.integer < y.integer;
  return x.fraction < y.fraction;  // neither has trailing zeros
}

}  // namespace

std::optional<Decimal> Decimal::Of(const nlohmann::ordered_json& number) {
  if (!number.is_number()) return std::nullopt;
  const std::string text = number.dump();
  Decimal decimal;
  size_t pos = 0;
  if (text[pos] == '-') decimal.is_negative = true, ++pos;
  std::string digits;
  int point = -1;
  for (; pos < text.size() && text[pos] != 'e' && text[pos] != 'E'; ++pos) {
    if (text[pos] == '.') {
      point = static_cast<int>(digits.size());
    } else if (text[pos] >= '0' && text[pos] <= '9') {
      digits += text[pos];
    } else {
      return std::nullopt;
    }
  }
  if (point < 0) point = static_cast<int>(digits.size());
  if (pos < text.size()) point += std::atoi(text.c_str() + pos + 1);
  if (digits.empty() || std::abs(point) > kMaxDigits) return std::nullopt;
  while (point > static_cast<int>(digits.size())) digits += '0';
  while (point < 0) digits.insert(0, "0"), ++point;
  decimal.integer = digits.substr(0, point);
  decimal.fraction = digits.substr(point);
  decimal.integer.erase(0,
                        std::min(decimal.integer.find_first_not_of('0'), decimal.integer.size()));
  if (decimal.integer.empty()) decimal.integer = "0";
  decimal.fraction.erase(decimal.fraction.find_last_not_of('0') + 1);
  if (decimal.IsZero()) decimal.is_negative = false;
  return decimal;
}

bool operator<(const Decimal& x, const Decimal& y) {
  if (x.is_negative != y.is_negative) return x.is_negative;
  return x.is_negative ? AbsLess(y, x) : AbsLess(x, y);
}

bool NumberRange::Contains(const Decimal& value) const {
  if (is_integer && !value.IsInteger()) return false;
  for (const Bound& bound : min) {
    if (value < bound.value || (bound.is_exclusive && value == bound.value)) return false;
  }
  for (const Bound& bound : max) {
    if (bound.value < value || (bound.is_exclusive && value == bound.value)) return false;
  }
  const auto divides = [&](const Multiple& each) { return IsMultiple(value, each); };
  return !(is_fraction && value.IsInteger()) &&
         std::all_of(multiples.begin(), multiples.end(), divides) &&
         std::none_of(no_multiples.begin(), no_multiples.end(), divides) &&
         std::find(excluded.begin(), excluded.end(), value) == excluded.end();
}

RegexId NumberRange::Regex(RegexPool& pool) const {
  if (IsFree()) return is_integer ? AnyJsonInteger(pool) : AnyJsonNumber(pool);
  const RegexId minus = pool.Literal("-");
  const RegexId form =
      is_integer ? AnyJsonInteger(pool) : pool.Concat(AnyJsonInteger(pool), AnyFraction(pool));
  std::vector<RegexId> positive, negative{form};
  if (!is_integer) {
    // A reader with doubles must not round a number to a bound that it may not reach, nor to
    // another multiple: 15 digits are exact.
    const bool is_exact =
        is_fraction || !multiples.empty() || !no_multiples.empty() || !excluded.empty();
    int max_digits = is_exact ? 15 : RegexPool::kUnlimited;
    for (const std::vector<Bound>* bounds : {&min, &max}) {
      for (const Bound& bound : *bounds) {
        if (!bound.is_exclusive || max_digits == 15) continue;
        max_digits = bound.value.IsZero() ? 300 : 15;
      }
    }
    if (max_digits != RegexPool::kUnlimited) {
      ByteSet digits = ByteSet::Range('0', '9');
      digits.Add('.');
      const RegexId few = pool.Repeat(pool.Bytes(digits), 1, max_digits + 1);
      positive.push_back(few);
      negative.push_back(pool.Concat(minus, few));
    }
  }
  for (const Bound& bound : min) {
    if (bound.value.is_negative) {
      negative.push_back(pool.Concat(minus, AtMost(pool, bound)));
      continue;
    }
    positive.push_back(AtLeast(pool, bound));
    negative.push_back(bound.value.IsZero() ? pool.Concat(minus, AtMost(pool, bound))
                                            : RegexPool::kNothing);
  }
  for (const Bound& bound : max) {
    if (!bound.value.is_negative) {
      positive.push_back(AtMost(pool, bound));
      if (bound.value.IsZero()) negative.push_back(pool.Concat(minus, AtLeast(pool, bound)));
      continue;
    }
    positive.push_back(RegexPool::kNothing);
    negative.push_back(pool.Concat(minus, AtLeast(pool, bound)));
  }
  const auto add = [&](RegexId unsigned_form, bool is_allowed) {
    const RegexId with_minus = pool.Concat(minus, unsigned_form);
    positive.push_back(is_allowed ? unsigned_form : pool.Complement(unsigned_form));
    negative.push_back(is_allowed ? with_minus : pool.Complement(with_minus));
  };
  for (const Multiple& each : multiples) add(pool.Multiples(each.divisor, each.scale), true);
  for (const Multiple& each : no_multiples) add(pool.Multiples(each.divisor, each.scale), false);
  if (is_fraction) {
    const RegexId whole =
        pool.Concat(AnyDigits(pool, 1, RegexPool::kUnlimited),
                    pool.Optional(pool.Concat(pool.Literal("."), Zeros(pool, 1))));
    add(whole, false);
  }
  for (Decimal each : excluded) {
    const bool is_negative = std::exchange(each.is_negative, false);
    const RegexId same = pool.Complement(SpellNumber(pool, each));
    if (!is_negative) positive.push_back(same);
    if (is_negative || each.IsZero()) {
      negative.push_back(pool.Complement(pool.Concat(minus, SpellNumber(pool, each))));
    }
  }
  positive.push_back(form);
  positive.push_back(pool.Complement(pool.Concat(minus, RegexPool::kAll)));
  negative.push_back(pool.Concat(minus, RegexPool::kAll));
  return pool.Union(
      {pool.Intersection(std::move(positive)), pool.Intersection(std::move(negative))});
}

RegexId SpellNumber(RegexPool& pool, const Decimal& value) {
  const RegexId integer = pool.Literal((value.is_negative ? "-" : "") + value.integer);
  if (value.fraction.empty()) {
    return pool.Concat(integer, pool.Optional(pool.Concat(pool.Literal("."), Zeros(pool, 1))));
  }
  return pool.Concat({integer, pool.Literal("." + value.fraction), Zeros(pool, 0)});
}

}  // namespace nereid::llm::grammar
