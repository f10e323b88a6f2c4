// Checks HTTP requests with AccessControl, for the endpoints of every HTTP port. [loop thread]
#pragma once

#include <string_view>

#include "host/frontend/access_control.h"
#include "host/frontend/http/transport/http_connection.h"

namespace nereid::http {

// A request as AccessControl sees it. The arguments outlive the object.
class RequestCaller final : public ApiCaller {
 public:
  RequestCaller(const HttpConnection& connection, const RequestHead& head)
      : connection_(connection), head_(head) {}
  std::string_view FindHeader(std::string_view name) const override { return head_.Header(name); }
  bool IsPeerLocal() const override { return connection_.IsPeerLocal(); }

 private:
  const HttpConnection& connection_;
  const RequestHead& head_;
};

// Returns false after it has answered a request that is not permitted.
bool CheckAccess(const AccessControl& access, HttpConnection& connection, const RequestHead& head,
                 ApiOperation operation, std::string_view model = {});

}  // namespace nereid::http
