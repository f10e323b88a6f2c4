// See option_values.h.
#include "host/option_values.h"

#include <strings.h>

#include <charconv>
#include <cstdlib>

namespace nereid {

Result<bool> ParseBoolValue(std::string_view text) {
  const std::string copy(text);
  for (const char* yes : {"true", "1"}) {
    if (strcasecmp(copy.c_str(), yes) == 0) return true;
  }
  for (const char* no : {"false", "0"}) {
    if (strcasecmp(copy.c_str(), no) == 0) return false;
  }
  return InvalidArgError("expected true, false, 1 or 0, got '", text, "'");
}

Result<int64_t> ParseIntValue(std::string_view text, int64_t min, int64_t max) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && value >= min && value <= max) return value;
  if (max == std::numeric_limits<int64_t>::max()) {
    return InvalidArgError("expected an integer from ", min, " up, got '", text, "'");
  }
  return InvalidArgError("expected an integer from ", min, " to ", max, ", got '", text, "'");
}

Result<double> ParseDoubleValue(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (copy.empty() || *end != '\0') {
    return InvalidArgError("expected a number, got '", text, "'");
  }
  return value;
}

Result<size_t> ParseChoice(std::string_view text, std::span<const char* const> choices) {
  const std::string copy(text);
  std::string names;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (strcasecmp(copy.c_str(), choices[i]) == 0) return i;
    names += i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ";
    names += choices[i];
  }
  return InvalidArgError("expected ", names, ", got '", text, "'");
}

Result<std::pair<std::string, std::string>> SplitValue(std::string_view text, char separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos || at == 0 || at + 1 == text.size()) {
    return InvalidArgError("expected two values with '", separator, "' between them, got '", text,
                           "'");
  }
  return std::pair(std::string(text.substr(0, at)), std::string(text.substr(at + 1)));
}

Result<NamedSetting> ParseNamedSetting(std::string_view text) {
  NamedSetting setting;
  const size_t equals = text.find('=');
  const size_t comma = text.substr(0, equals).find(',');
  std::string_view pair = text;
  if (comma != std::string_view::npos) {
    setting.name = text.substr(0, comma);
    pair = text.substr(comma + 1);
  }
  const size_t split = pair.find('=');
  const bool is_whole = split != std::string_view::npos && split > 0 && split + 1 < pair.size();
  if (!is_whole || comma == 0) {
    return InvalidArgError("expected <name>,<key>=<value> or <key>=<value>, got '", text, "'");
  }
  setting.key = pair.substr(0, split);
  setting.value = pair.substr(split + 1);
  return setting;
}

}  // namespace nereid
