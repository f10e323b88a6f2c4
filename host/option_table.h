// The table of flags. [main thread]
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "host/options.h"

namespace nereid {

struct Flag {
  std::string_view section;  // of the help text
  std::string_view name;     // with its dashes
  std::string_view value;    // what the help text calls it; empty: the flag takes none
  std::string_view help;
  Status (*apply)(Options& options, const std::string& value);
};

std::span<const Flag> CoreFlags();
std::span<const Flag> FrontendFlags();

}  // namespace nereid
