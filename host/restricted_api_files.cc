#include "host/restricted_api_files.h"

#include <sstream>

#include "base/file_content.h"

namespace nereid {

Status AddRestrictedApis(const std::string& path, RestrictedApis& apis) {
  constexpr size_t kMaxBytes = 1 << 20;
  NEREID_ASSIGN_OR_RETURN(std::string content, ReadFile(path, kMaxBytes));
  std::istringstream lines(std::move(content));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    const Status added = apis.Add(line);
    if (added.ok()) continue;
    std::string message = added.message();
    if (const size_t at = message.find(line); at != std::string::npos) {
      message.replace(at, line.size(), "...");
    }
    return InvalidArgError("'", path, "', line ", number, ": ", message);
  }
  return {};
}

}  // namespace nereid
