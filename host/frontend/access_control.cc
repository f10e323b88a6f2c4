#include "host/frontend/access_control.h"

#include "nereid/status.h"

namespace nereid {
namespace {

// Headers that proxies and browsers add. A request that has one of them comes from somebody else
// than the program at the socket's other end.
constexpr std::string_view kForwardingHeaders[] = {"forwarded", "x-forwarded-for", "x-real-ip",
                                                   "via", "origin"};

// Triton's text.
constexpr char kClientShmDisabled[] =
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.";

bool IsLocal(const ApiCaller& caller) {
  for (const std::string_view header : kForwardingHeaders) {
    if (caller.FindHeader(header).data() != nullptr) return false;
  }
  return caller.IsPeerLocal();
}

}  // namespace

std::optional<Denial> AccessControl::Authenticate(const ApiCaller& caller,
                                                  ApiOperation operation) const {
  const ApiOperationRule& rule = RuleOf(operation);
  const RestrictedApis::Secret* const secret = rule.group ? restricted_.Find(*rule.group) : nullptr;
  if (secret == nullptr || secret->Matches(caller.FindHeader(secret->header))) return std::nullopt;
  return Denial{Denial::Reason::kRestricted, secret->header};
}

std::optional<Denial> AccessControl::Authorize(const ApiCaller& caller, ApiOperation operation,
                                               std::string_view) const {
  const ApiOperationRule& rule = RuleOf(operation);
  if (rule.changes_server && !policy_.allows_remote_admin && !IsLocal(caller)) {
    return Denial{Denial::Reason::kNotPermitted,
                  StrCat("only a client on the server's machine may ", rule.action,
                         ". Start the server with '--remote-admin' to permit it to every client.")};
  }
  if (operation == ApiOperation::kChangeSharedMemory && !policy_.allows_client_shm) {
    return Denial{Denial::Reason::kDisabled, kClientShmDisabled};
  }
  if (operation == ApiOperation::kLoadInlineModel && !policy_.allows_inline_models) {
    return Denial{Denial::Reason::kNotPermitted,
                  "load requests with the parameters 'config' or 'file:<path>' can run code. Start "
                  "the server with '--allow-inline-models' to permit them."};
  }
  return std::nullopt;
}

std::optional<Denial> AccessControl::Check(const ApiCaller& caller, ApiOperation operation,
                                           std::string_view model) const {
  std::optional<Denial> denial = Authenticate(caller, operation);
  return denial ? denial : Authorize(caller, operation, model);
}

}  // namespace nereid
