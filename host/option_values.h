// Parsers for flag values. Errors name the expected and the actual value; the caller adds the flag.
// Pure functions. [main thread]
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "nereid/status.h"

namespace nereid {

// Accepts true, false, 1 and 0, ignoring case.
Result<bool> ParseBoolValue(std::string_view text);
Result<int64_t> ParseIntValue(std::string_view text, int64_t min,
                              int64_t max = std::numeric_limits<int64_t>::max());
Result<double> ParseDoubleValue(std::string_view text);
// Returns the index of `text` in `choices`, ignoring case. `choices` are in lower case.
Result<size_t> ParseChoice(std::string_view text, std::span<const char* const> choices);
// Splits "<left><separator><right>" at the first separator. Neither side may be empty.
Result<std::pair<std::string, std::string>> SplitValue(std::string_view text, char separator);

// "<name>,<key>=<value>" or "<key>=<value>", for which the name is empty.
struct NamedSetting {
  std::string name;
  std::string key;
  std::string value;
};
Result<NamedSetting> ParseNamedSetting(std::string_view text);

}  // namespace nereid
