// Parses the arguments of nereid-repo: `--name=value`, `--name value`, `--switch`, and positional
// words.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "nereid/status.h"

namespace nereid::repo {

struct CommandLine {
  std::vector<std::string> words;                          // positional, in order
  std::map<std::string, std::vector<std::string>> values;  // by option, including the dashes
  std::set<std::string> switches;

  bool Has(const std::string& option) const { return switches.count(option) > 0; }
  // The last given value.
  std::string ValueOr(const std::string& option, const std::string& fallback) const;
  Result<int> IntOr(const std::string& option, int fallback) const;
};

// An option in neither list is an error, which suggests the closest known one.
Result<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments,
                                     const std::vector<std::string>& valued,
                                     const std::vector<std::string>& switches);

}  // namespace nereid::repo
