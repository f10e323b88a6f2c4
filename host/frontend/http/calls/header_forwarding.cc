// RE2: its run time is linear in the header's length, whatever the pattern.
#include "host/frontend/http/calls/header_forwarding.h"

#include <re2/re2.h>

namespace nereid::http {

HeaderForwarding::HeaderForwarding(std::unique_ptr<re2::RE2> pattern)
    : pattern_(std::move(pattern)) {}
HeaderForwarding::HeaderForwarding(HeaderForwarding&&) noexcept = default;
HeaderForwarding::~HeaderForwarding() = default;

Result<HeaderForwarding> HeaderForwarding::Create(const std::string& pattern) {
  if (pattern.empty()) return HeaderForwarding(nullptr);
  re2::RE2::Options options;
  options.set_case_sensitive(false);
  options.set_log_errors(false);
  auto compiled = std::make_unique<re2::RE2>(pattern, options);
  if (!compiled->ok()) {
    return InvalidArgError("header forward pattern '", pattern, "': ", compiled->error());
  }
  return HeaderForwarding(std::move(compiled));
}

Status HeaderForwarding::Apply(const RequestHead& head, InferRequest& request) const {
  if (pattern_ == nullptr) return Status::Ok();
  for (const auto& [name, value] : head.headers) {
    if (!re2::RE2::PartialMatch({name.data(), name.size()}, *pattern_)) continue;
    const std::string key(name);
    NEREID_RETURN_IF_ERROR(request.SetParameter(key.c_str(), std::string(value).c_str()));
  }
  return Status::Ok();
}

}  // namespace nereid::http
