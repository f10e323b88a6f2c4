// Parses the arguments of the tools and of the sub-commands of `nereid`: `--name=value`, `--name
// value`, `--switch`, and positional words. [main thread]
#pragma once

#include <climits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "nereid/status.h"

namespace nereid {

struct CommandLine {
  std::vector<std::string> words;                          // positional, in order
  std::map<std::string, std::vector<std::string>> values;  // by option, including the dashes
  std::set<std::string> switches;

  bool Has(const std::string& option) const { return switches.count(option) > 0; }
  // The last given value.
  std::string ValueOr(const std::string& option, const std::string& fallback) const;
  // INVALID_ARG if the value is no integer from `min` to `max`.
  Result<int> IntOr(const std::string& option, int fallback, int min = INT_MIN,
                    int max = INT_MAX) const;
};

// An option in neither list is an error, which suggests the closest known one. `--help` and `-h`
// are always known; what follows them is not read.
Result<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments,
                                     const std::vector<std::string>& valued,
                                     const std::vector<std::string>& switches);

}  // namespace nereid
