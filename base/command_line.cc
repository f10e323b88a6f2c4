#include "base/command_line.h"

#include <algorithm>
#include <charconv>

#include "base/closest_name.h"

namespace nereid {
namespace {

bool Contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace

std::string CommandLine::ValueOr(const std::string& option, const std::string& fallback) const {
  const auto it = values.find(option);
  return it == values.end() ? fallback : it->second.back();
}

Result<int> CommandLine::IntOr(const std::string& option, int fallback, int min, int max) const {
  const auto it = values.find(option);
  if (it == values.end()) return fallback;
  const std::string& text = it->second.back();
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && number >= min && number <= max) return number;
  return InvalidArgError(option, ": expected an integer",
                         min == INT_MIN ? std::string() : StrCat(" from ", min, " to ", max),
                         ", got '", text, "'");
}

Result<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments,
                                     const std::vector<std::string>& valued,
                                     const std::vector<std::string>& switches) {
  CommandLine line;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      line.switches.insert("--help");
      return line;
    }
    if (!argument.starts_with("-")) {
      line.words.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    if (Contains(switches, name)) {
      if (equals != std::string::npos) {
        return InvalidArgError(name, ": takes no value, got '", argument.substr(equals + 1), "'");
      }
      line.switches.insert(name);
    } else if (!Contains(valued, name)) {
      std::vector<std::string> known = valued;
      known.insert(known.end(), switches.begin(), switches.end());
      return InvalidArgError("unknown option '", name, "'", DidYouMean(name, known));
    } else if (equals != std::string::npos) {
      line.values[name].push_back(argument.substr(equals + 1));
    } else if (i + 1 < arguments.size()) {
      line.values[name].push_back(arguments[++i]);
    } else {
      return InvalidArgError(name, ": expected a value");
    }
  }
  return line;
}

}  // namespace nereid
