#include "host/frontend/http/bodies/unknown_member_log.h"

#include "nereid/status.h"

namespace nereid::http {

std::string UnknownMemberLog::LineFor(std::string_view model, std::string_view member) {
  std::string name(member.substr(0, kMaxNameBytes));
  const std::lock_guard lock(mutex_);
  if (named_.size() == kMaxNames) return {};
  const auto [at, is_new] = named_.emplace(std::string(model), std::move(name));
  if (!is_new) return {};
  return StrCat("model '", model, "' has no input '", at->second,
                "': generate passes this member on as a request parameter, which language models "
                "do not read; it is not named again",
                named_.size() == kMaxNames ? ", nor is any further member" : "");
}

}  // namespace nereid::http
