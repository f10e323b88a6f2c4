// Names in the log the members of generate requests that a language model does not know. [any
// thread]
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace nereid::http {

// Clients choose the names, so the log remembers a limited number of them and writes a limited part
// of each.
class UnknownMemberLog {
 public:
  static constexpr size_t kMaxNames = 256;
  static constexpr size_t kMaxNameBytes = 64;

  // The line for the log, or an empty text if this member of this model was named before or if
  // kMaxNames have been.
  std::string LineFor(std::string_view model, std::string_view member);

 private:
  std::mutex mutex_;  // guards the member below
  std::set<std::pair<std::string, std::string>> named_;
};

}  // namespace nereid::http
