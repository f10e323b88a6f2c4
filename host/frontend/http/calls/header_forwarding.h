// Headers that become parameters of inference requests, as --http-header-forward-pattern says.
// [any thread]
#pragma once

#include <memory>
#include <string>

#include "host/frontend/http/transport/request.h"
#include "nereid/infer_request.h"
#include "nereid/status.h"

namespace re2 {
class RE2;
}

namespace nereid::http {

class HeaderForwarding {
 public:
  // An empty pattern forwards nothing. A pattern matches any part of a name, letter
  // case aside, as in Triton.
  static Result<HeaderForwarding> Create(const std::string& pattern);
  HeaderForwarding(HeaderForwarding&&) noexcept;
  ~HeaderForwarding();

  // A header sets a string parameter of its own name, spelled as the client did.
  Status Apply(const RequestHead& head, InferRequest& request) const;

 private:
  explicit HeaderForwarding(std::unique_ptr<re2::RE2> pattern);

  std::unique_ptr<re2::RE2> pattern_;  // null: nothing is forwarded
};

}  // namespace nereid::http
