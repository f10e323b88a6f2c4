// What the checker says of a repository: a fault with its place, and whether it keeps a model from
// working.
#pragma once

#include <string>
#include <vector>

#include "host/core/config/fault.h"

namespace nereid::repo {

struct Finding {
  config::Fault fault;
  bool is_warning = false;
};
using Findings = std::vector<Finding>;

// "error: <file>:<line>:<column>: <key>: <message>", one a line.
std::string ToText(const Findings& findings);
// A JSON array of objects with severity, file, line, column, key and message.
std::string ToJson(const Findings& findings);
bool HasError(const Findings& findings);

}  // namespace nereid::repo
