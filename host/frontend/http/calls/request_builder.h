// Builds requests of the C API from parsed bodies and from request headers. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "host/frontend/access_control.h"
#include "host/frontend/http/bodies/infer_body.h"
#include "host/frontend/http/transport/http_request.h"
#include "nereid/infer_request.h"
#include "nereid/server.h"
#include "nereid/status.h"

namespace re2 {
class RE2;
}

namespace nereid::http {

// The model that a path names. With version -1 the model's version policy chooses.
struct RequestedModel {
  std::string name;
  int64_t version = -1;
};

// The request references the inputs' bytes.
Result<InferRequest> BuildRequest(const Server& server, const RequestedModel& model,
                                  const RequestOptions& options,
                                  std::span<const InputTensor> inputs,
                                  std::span<const RequestedOutput> outputs);

// Builds a request whose only input is `bytes`, with data type and shape from the model
// configuration.
Result<InferRequest> BuildRawRequest(const Server& server, const RequestedModel& model,
                                     std::string_view bytes);

// Forwards request headers as parameters of inference requests (--http-header-forward-pattern).
class HeaderForwarding {
 public:
  // An empty pattern forwards nothing. As in Triton, the pattern may match any part of a header
  // name, without regard to case.
  static Result<HeaderForwarding> Create(const std::string& pattern);
  HeaderForwarding(HeaderForwarding&&) noexcept;
  ~HeaderForwarding();

  // Sets a string parameter for each matching header, except those that carry a secret. Its name is
  // spelled as the client sent it.
  Status Apply(const RequestHead& head, const AccessControl& access, InferRequest& request) const;

 private:
  explicit HeaderForwarding(std::unique_ptr<re2::RE2> pattern);

  std::unique_ptr<re2::RE2> pattern_;  // null if nothing is forwarded
};

}  // namespace nereid::http
