#include "host/frontend/http/request_access.h"

namespace nereid::http {

bool CheckAccess(const AccessControl& access, HttpConnection& connection, const RequestHead& head,
                 ApiOperation operation, std::string_view model) {
  const auto denial = access.Check(RequestCaller(connection, head), operation, model);
  if (!denial) return true;
  switch (denial->reason) {
    case Denial::Reason::kRestricted:
      connection.Reply(
          {.status = 403},
          ErrorBody(StrCat("This API is restricted, expecting header '", denial->message, "'")));
      break;
    case Denial::Reason::kNoKey:
      connection.Reply({.status = 401, .extra_headers = "WWW-Authenticate: Bearer\r\n"},
                       ErrorBody(denial->message));
      break;
    case Denial::Reason::kNotPermitted:
      connection.Reply({.status = 403}, ErrorBody(denial->message));
      break;
    case Denial::Reason::kDisabled:
      connection.Reply({.status = 501}, ErrorBody(denial->message));
      break;
  }
  return false;
}

}  // namespace nereid::http
