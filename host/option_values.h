// The texts that flags take, parsed. Errors name what was expected and what was given; the caller
// adds the flag. Pure. [main thread]
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "nereid/status.h"

namespace nereid {

// true, false, 1, 0; letter case aside.
Result<bool> ParseBoolValue(std::string_view text);
Result<int64_t> ParseIntValue(std::string_view text, int64_t min,
                              int64_t max = std::numeric_limits<int64_t>::max());
Result<double> ParseDoubleValue(std::string_view text);
// The place of `text` among `choices`, which are in lower case; letter case aside.
Result<size_t> ParseChoice(std::string_view text, std::span<const char* const> choices);
// "<left><separator><right>", at the first separator; both sides are there.
Result<std::pair<std::string, std::string>> SplitValue(std::string_view text, char separator);

// "<name>,<key>=<value>"; without "<name>," the name is empty.
struct NamedSetting {
  std::string name;
  std::string key;
  std::string value;
};
Result<NamedSetting> ParseNamedSetting(std::string_view text);

}  // namespace nereid
