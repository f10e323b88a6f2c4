// The arguments of nereid-repo: `--name=value`, `--name value`, `--switch`, and the rest in order.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "nereid/status.h"

namespace nereid::repo {

struct CommandLine {
  std::vector<std::string> words;                          // without dashes, in order
  std::map<std::string, std::vector<std::string>> values;  // by option, "--" included
  std::set<std::string> switches;

  bool Has(const std::string& option) const { return switches.count(option) > 0; }
  // The last value given.
  std::string ValueOr(const std::string& option, const std::string& fallback) const;
  Result<int> IntOr(const std::string& option, int fallback) const;
};

// Options outside of the two lists are errors that name the nearest known one.
Result<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments,
                                     const std::vector<std::string>& valued,
                                     const std::vector<std::string>& switches);

}  // namespace nereid::repo
