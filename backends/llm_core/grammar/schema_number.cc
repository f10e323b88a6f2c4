// Expressions of the texts of numbers between bounds, digit by digit.
#include "backends/llm_core/grammar/schema_number.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "backends/llm_core/grammar/json_text.h"

namespace nereid::llm::grammar {
namespace {

constexpr int kMaxDigits = 300;
constexpr int kExactDigits = 15;  // of a double

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

// The most digits of a number. A reader with doubles must not round it to a bound that it may not
// reach, nor to another multiple: 15 digits are exact. Where the only such bound is 0, a number
// must not be so small that it is read as 0.
int MaxDigits(const NumberRange& range) {
  if (range.is_integer) return RegexPool::kUnlimited;
  if (range.is_fraction || !range.multiples.empty() || !range.no_multiples.empty() ||
      !range.excluded.empty()) {
    return kExactDigits;
  }
  int most = RegexPool::kUnlimited;
  for (const std::vector<NumberRange::Bound>* bounds : {&range.min, &range.max}) {
    for (const NumberRange::Bound& bound : *bounds) {
      if (!bound.is_exclusive || most == kExactDigits) continue;
      most = bound.value.IsZero() ? kMaxDigits : kExactDigits;
    }
  }
  return most;
}

// The texts of a range, as what those without a sign and those with a minus have to match.
class SignedTexts {
 public:
  SignedTexts(RegexPool& pool, bool is_integer)
      : pool_(pool), minus_(pool.Literal("-")), any_negative_(WithMinus(RegexPool::kAll)) {
    const RegexId number =
        is_integer ? AnyJsonInteger(pool) : pool.Concat(AnyJsonInteger(pool), AnyFraction(pool));
    positive_ = {number, pool.Complement(any_negative_)};
    negative_ = {number, any_negative_};
  }

  // Behind its sign, a text matches `absolute`.
  void Require(RegexId absolute) {
    positive_.push_back(absolute);
    negative_.push_back(WithMinus(absolute));
  }
  // Behind its sign, no text matches `absolute`.
  void Exclude(RegexId absolute) {
    positive_.push_back(pool_.Complement(absolute));
    negative_.push_back(pool_.Complement(WithMinus(absolute)));
  }
  // -0 is both at least and at most 0.
  void RequireMin(const NumberRange::Bound& bound) {
    const Decimal& value = bound.value;
    if (!value.is_negative) positive_.push_back(AtLeast(pool_, bound));
    negative_.push_back(value.is_negative || value.IsZero() ? WithMinus(AtMost(pool_, bound))
                                                            : RegexPool::kNothing);
  }
  void RequireMax(const NumberRange::Bound& bound) {
    const Decimal& value = bound.value;
    positive_.push_back(value.is_negative ? RegexPool::kNothing : AtMost(pool_, bound));
    if (value.is_negative || value.IsZero()) {
      negative_.push_back(WithMinus(AtLeast(pool_, bound)));
    }
  }
  void ExcludeNumber(Decimal number) {
    const bool is_negative = std::exchange(number.is_negative, false);
    const RegexId absolute = SpellNumber(pool_, number);
    if (!is_negative) positive_.push_back(pool_.Complement(absolute));
    if (is_negative || number.IsZero()) {
      negative_.push_back(pool_.Complement(WithMinus(absolute)));
    }
  }
  RegexId All() const {
    return pool_.Union({pool_.Intersection(positive_), pool_.Intersection(negative_)});
  }

 private:
  RegexId WithMinus(RegexId absolute) const { return pool_.Concat(minus_, absolute); }

  RegexPool& pool_;
  const RegexId minus_, any_negative_;
  std::vector<RegexId> positive_, negative_;  // all apply
};

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

std::optional<Decimal> BoundOf(const nlohmann::ordered_json& number) {
  std::optional<Decimal> value = Decimal::Of(number);
  if (value && number.is_number_float() && value->integer.size() > kExactDigits) return {};
  return value;
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
  SignedTexts texts(pool, is_integer);
  if (const int most = MaxDigits(*this); most != RegexPool::kUnlimited) {
    ByteSet digits = ByteSet::Range('0', '9');
    digits.Add('.');
    texts.Require(pool.Repeat(pool.Bytes(digits), 1, most + 1));
  }
  for (const Bound& bound : min) texts.RequireMin(bound);
  for (const Bound& bound : max) texts.RequireMax(bound);
  for (const Multiple& each : multiples) {
    texts.Require(pool.Multiples(each.divisor, each.scale));
  }
  for (const Multiple& each : no_multiples) {
    texts.Exclude(pool.Multiples(each.divisor, each.scale));
  }
  if (is_fraction) {
    texts.Exclude(pool.Concat(AnyDigits(pool, 1, RegexPool::kUnlimited),
                              pool.Optional(pool.Concat(pool.Literal("."), Zeros(pool, 1)))));
  }
  for (const Decimal& each : excluded) texts.ExcludeNumber(each);
  return texts.All();
}

RegexId SpellNumber(RegexPool& pool, const Decimal& value) {
  const RegexId integer = pool.Literal((value.is_negative ? "-" : "") + value.integer);
  if (value.fraction.empty()) {
    return pool.Concat(integer, pool.Optional(pool.Concat(pool.Literal("."), Zeros(pool, 1))));
  }
  return pool.Concat({integer, pool.Literal("." + value.fraction), Zeros(pool, 0)});
}

}  // namespace nereid::llm::grammar
