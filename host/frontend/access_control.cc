#include "host/frontend/access_control.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include "nereid/status.h"

namespace nereid {
namespace {

// Headers that proxies and browsers add. A request that has one of them comes from somebody else
// than the program at the socket's other end.
constexpr std::string_view kForwardingHeaders[] = {"forwarded", "x-forwarded-for", "x-real-ip",
                                                   "via", "origin"};

constexpr std::string_view kAuthorization = "authorization";
constexpr std::string_view kApiKey = "x-api-key";  // of some routes

// Triton's text.
constexpr char kClientShmDisabled[] =
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.";

bool EqualsIgnoreCase(std::string_view text, std::string_view lower) {
  const auto is_same = [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b;
  };
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), is_same);
}

// True for names that always mean the machine itself, with or without a port. No web page can make
// its own host's name one of these.
bool IsLoopback(std::string_view host) {
  if (host.starts_with('[')) return host == "[::1]" || host.starts_with("[::1]:");
  host = host.substr(0, host.find(':'));
  const bool is_address = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return EqualsIgnoreCase(host, "localhost") || (host.starts_with("127.") && is_address);
}

// True if the request comes from a page of this server, which its user has reached as a name of the
// machine itself.
bool IsOwnPage(std::string_view origin, std::string_view host) {
  constexpr std::string_view kSchemes[] = {"http://", "https://"};
  return IsLoopback(host) &&
         std::any_of(std::begin(kSchemes), std::end(kSchemes), [&](auto scheme) {
           return origin.starts_with(scheme) && origin.substr(scheme.size()) == host;
         });
}

// Returns the key of "Bearer <key>"; empty if the header has another form.
std::string_view BearerKey(std::string_view header) {
  constexpr std::string_view kScheme = "bearer ";
  if (!EqualsIgnoreCase(header.substr(0, kScheme.size()), kScheme)) return {};
  header.remove_prefix(kScheme.size());
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

// Finds the key that `caller` sent. Otherwise returns null and says why in `denial`. The key lives
// as long as `keys`.
const ApiKey* FindKey(const ApiKeys& keys, const ApiCaller& caller, std::optional<Denial>& denial) {
  const std::string_view header = caller.FindHeader(kAuthorization);
  const std::string_view text = BearerKey(header);
  const ApiKey* const key = text.empty() ? nullptr : keys.Find(text, std::time(nullptr));
  if (key == nullptr) {
    denial = Denial{Denial::Reason::kNoKey,
                    header.data() == nullptr
                        ? "an API key is required: send the header 'Authorization: Bearer <key>'"
                        : "the API key is unknown or has expired"};
  }
  return key;
}

}  // namespace

bool AccessControl::IsLocal(const ApiCaller& caller) const {
  for (const std::string_view header : kForwardingHeaders) {
    const std::string_view value = caller.FindHeader(header);
    if (value.data() == nullptr) continue;
    const bool is_own = policy_.trusts_own_pages && header == "origin" &&
                        IsOwnPage(value, caller.FindHeader("host"));
    if (!is_own) return false;
  }
  return caller.IsPeerLocal();
}

std::optional<Denial> AccessControl::CheckRestriction(const ApiCaller& caller,
                                                      ApiOperation operation) const {
  const ApiOperationRule& rule = RuleOf(operation);
  const RestrictedApis::Secret* const secret = rule.group ? restricted_.Find(*rule.group) : nullptr;
  if (secret == nullptr || secret->Matches(caller.FindHeader(secret->header))) return std::nullopt;
  return Denial{Denial::Reason::kRestricted, secret->header};
}

std::optional<Denial> AccessControl::CheckKey(const ApiCaller& caller, const ApiOperationRule& rule,
                                              std::string_view model) const {
  if (!rule.right) return std::nullopt;
  std::optional<Denial> denial;
  const std::shared_ptr<const ApiKeys> keys = policy_.keys->keys();
  const ApiKey* const key = FindKey(*keys, caller, denial);
  if (key == nullptr || key->Permits(*rule.right, rule.scope, model)) return denial;
  std::string message =
      StrCat("the API key '", key->name, "' has no right '", NameOf(*rule.right), "'");
  if (rule.scope == ApiScope::kModel) message += StrCat(" for model '", model, "'");
  if (rule.scope == ApiScope::kAllModels) message += " for all models ('*')";
  return Denial{Denial::Reason::kNotPermitted, std::move(message)};
}

std::optional<Denial> AccessControl::Authenticate(const ApiCaller& caller,
                                                  ApiOperation operation) const {
  std::optional<Denial> denial = CheckRestriction(caller, operation);
  if (denial || policy_.keys == nullptr || !RuleOf(operation).right) return denial;
  const std::shared_ptr<const ApiKeys> keys = policy_.keys->keys();
  FindKey(*keys, caller, denial);
  return denial;
}

std::optional<Denial> AccessControl::Authorize(const ApiCaller& caller, ApiOperation operation,
                                               std::string_view model) const {
  const ApiOperationRule& rule = RuleOf(operation);
  if (policy_.keys != nullptr) {
    if (auto denial = CheckKey(caller, rule, model)) return denial;
  } else if (rule.changes_server && !policy_.allows_remote_admin && !IsLocal(caller)) {
    return Denial{Denial::Reason::kNotPermitted,
                  StrCat("only a client on the server's machine, or one with an API key "
                         "(--api-key-file), may ",
                         rule.action,
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
  std::optional<Denial> denial = CheckRestriction(caller, operation);
  return denial ? denial : Authorize(caller, operation, model);
}

bool AccessControl::IsSecretHeader(std::string_view name) const {
  return restricted_.IsSecretHeader(name) ||
         (policy_.keys != nullptr &&
          (EqualsIgnoreCase(name, kAuthorization) || EqualsIgnoreCase(name, kApiKey)));
}

}  // namespace nereid
