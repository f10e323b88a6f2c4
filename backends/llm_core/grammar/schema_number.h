// Numbers of JSON schemas: bounds as exact decimals, and the texts between them. [any thread]
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backends/llm_core/grammar/regex_pool.h"

namespace nereid::llm::grammar {

struct Decimal {
  bool is_negative = false;
  std::string integer = "0";  // digits without leading zeros, at least one
  std::string fraction;       // digits without trailing zeros

  // Nothing if `number` is no number, or has more than 300 digits. The decimal is the shortest that
  // reads as the same number, which is how it was written unless it had more than 15 digits.
  static std::optional<Decimal> Of(const nlohmann::ordered_json& number);
  bool IsZero() const { return integer == "0" && fraction.empty(); }
  bool IsInteger() const { return fraction.empty(); }
  // The number without an exponent. Equal numbers have the same text.
  std::string Text() const {
    return (is_negative ? "-" : "") + integer + (fraction.empty() ? "" : "." + fraction);
  }
};
bool operator<(const Decimal& x, const Decimal& y);
inline bool operator==(const Decimal& x, const Decimal& y) {
  return !(x < y) && !(y < x);
}

struct NumberRange {
  struct Bound {
    Decimal value;
    bool is_exclusive = false;
  };
  struct Multiple {  // of divisor / 10^scale
    uint32_t divisor = 1;
    int scale = 0;
  };
  bool is_integer = false, is_fraction = false;  // is_fraction: no integer
  std::vector<Bound> min, max;                   // all apply
  std::vector<Multiple> multiples, no_multiples;
  std::vector<Decimal> excluded;

  bool IsFree() const {
    return !is_fraction && min.empty() && max.empty() && multiples.empty() &&
           no_multiples.empty() && excluded.empty();
  }
  bool Contains(const Decimal& value) const;
  // The texts of the numbers. With limits a number has no exponent; an integer never has one, nor a
  // fraction.
  RegexId Regex(RegexPool& pool) const;
};

// A keyword of a schema that bounds numbers.
struct BoundKeyword {
  const char* name;
  bool is_min;
  bool is_exclusive;
  // In draft 4, this keyword is a boolean that makes `name` exclusive.
  const char* draft4_flag;
};
inline constexpr BoundKeyword kBoundKeywords[] = {{"minimum", true, false, "exclusiveMinimum"},
                                                  {"maximum", false, false, "exclusiveMaximum"},
                                                  {"exclusiveMinimum", true, true, nullptr},
                                                  {"exclusiveMaximum", false, true, nullptr}};
// The number of a bound. Nothing if it is too large to be exact: see Decimal::Of.
std::optional<Decimal> BoundOf(const nlohmann::ordered_json& number);

// The texts of one number, without exponent: 1, 1.0, 1.00 and so on.
RegexId SpellNumber(RegexPool& pool, const Decimal& value);

}  // namespace nereid::llm::grammar
