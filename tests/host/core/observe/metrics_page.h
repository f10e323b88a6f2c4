// What tests look for in a page of metrics.
#pragma once

#include <string>

namespace nereid::core {

// Whether the page has `line`, which may also be several lines.
inline bool HasLine(const std::string& page, const std::string& line) {
  return page.find(line + "\n") != std::string::npos;
}

}  // namespace nereid::core
