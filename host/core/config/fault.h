// One thing wrong with a configuration: where and what. The checker prints all of them, a load
// reports them in its reason.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::config {

struct Fault {
  std::string
      file;  // as opened; empty when the configuration came as a load parameter or from a backend
  int line = 0;     // 1-based; 0: unknown
  int column = 0;   // 1-based; 0: unknown
  std::string key;  // "input[0].dims"; empty: the file as a whole
  std::string message;

  // "<file>:<line>:<column>: <key>: <message>", without the parts that are unknown.
  std::string ToString() const;
};

using Faults = std::vector<Fault>;

// Ok when empty; else INVALID_ARG with every fault, separated by "; ".
Status ToStatus(const Faults& faults);

}  // namespace nereid::config
