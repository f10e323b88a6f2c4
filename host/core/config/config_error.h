// An error in a configuration: position and message. The repository checker prints all errors; a
// failed load reports them as its reason.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nereid/status.h"

namespace nereid::core::config {

struct ConfigError {
  // Path of the file; empty if the configuration came from a load parameter or a backend.
  std::string file;
  int line = 0;     // 1-based; 0: unknown
  int column = 0;   // 1-based; 0: unknown
  std::string key;  // such as "input[0].dims"; empty: the error concerns the whole file
  std::string message;

  // "<file>:<line>:<column>: <key>: <message>"; unknown parts are left out.
  std::string ToString() const {
    std::string text = file;
    if (line > 0) {
      text += StrCat(text.empty() ? "line " : ":", line);
      if (column > 0) text += StrCat(":", column);
    }
    for (const std::string* part : {&key, &message}) {
      if (part->empty()) continue;
      if (!text.empty()) text += ": ";
      text += *part;
    }
    return text;
  }
};

using ConfigErrors = std::vector<ConfigError>;

// Ok if `errors` is empty; otherwise INVALID_ARG with the first sixteen of them, separated by "; ",
// and the number of the others.
inline Status ToStatus(const ConfigErrors& errors) {
  if (errors.empty()) return Status::Ok();
  constexpr size_t kMaxShown = 16;
  std::string text;
  for (size_t i = 0; i < errors.size() && i < kMaxShown; ++i) {
    if (!text.empty()) text += "; ";
    text += errors[i].ToString();
  }
  if (errors.size() > kMaxShown)
    text += StrCat("; and ", errors.size() - kMaxShown, " more errors");
  return {StatusCode::kInvalidArg, std::move(text)};
}

}  // namespace nereid::core::config
