// Decides whether a client may do what it asks for, for HTTP, gRPC, metrics and the cloud ports
// alike, by the table in api_operation.h. [any thread]
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "host/frontend/api_keys.h"
#include "host/frontend/api_operation.h"
#include "host/frontend/restricted_apis.h"

namespace nereid {

// What the command line permits; the same for all ports.
struct AccessPolicy {
  bool allows_remote_admin = false;   // --remote-admin
  bool allows_inline_models = false;  // --allow-inline-models
  bool allows_client_shm = false;     // --allow-client-shm
  // The server has a web console: a page that a local server has sent is as local as its user.
  bool trusts_own_pages = false;
  // --api-key-file; null: no keys. With keys, a client needs one wherever it is, and the key's
  // rights decide what it may do.
  std::shared_ptr<const ApiKeyFile> keys = nullptr;
};

// The client of one request, as its protocol knows it. Used only while the request is checked.
class ApiCaller {
 public:
  // `name` is in lower case. Returns the first value, or a view with null data() if the request
  // does not have the header.
  virtual std::string_view FindHeader(std::string_view name) const = 0;
  // True if the socket's peer is on this machine.
  virtual bool IsPeerLocal() const = 0;

 protected:
  ~ApiCaller() = default;
};

// Why a request is refused. The protocols map the reason to their codes.
struct Denial {
  enum class Reason {
    kRestricted,    // the secret of a restricted group is missing: HTTP 403, gRPC UNAVAILABLE
    kNoKey,         // HTTP 401, gRPC UNAUTHENTICATED
    kNotPermitted,  // HTTP 403, gRPC PERMISSION_DENIED
    kDisabled,      // for every client: HTTP 501, gRPC UNIMPLEMENTED
  };
  Reason reason;
  std::string message;  // of kRestricted: the name of the header that carries the secret
};

// One for each port. Immutable.
class AccessControl {
 public:
  AccessControl(const AccessPolicy& policy, RestrictedApis restricted)
      : policy_(policy), restricted_(std::move(restricted)) {}

  // nullopt if `caller` may do it. Covers what is known before the request's message is parsed: the
  // secret of a restricted group and that there is a key. Authorize may then be called with another
  // operation of the same group.
  std::optional<Denial> Authenticate(const ApiCaller& caller, ApiOperation operation) const;
  // Covers the rest. `model` is the requested model, empty if the operation names none.
  std::optional<Denial> Authorize(const ApiCaller& caller, ApiOperation operation,
                                  std::string_view model) const;
  // Both.
  std::optional<Denial> Check(const ApiCaller& caller, ApiOperation operation,
                              std::string_view model = {}) const;

  // True if a header of this name carries a secret, which no model may see. Ignores case.
  bool IsSecretHeader(std::string_view name) const;

 private:
  std::optional<Denial> CheckRestriction(const ApiCaller& caller, ApiOperation operation) const;
  bool IsLocal(const ApiCaller& caller) const;
  std::optional<Denial> CheckKey(const ApiCaller& caller, const ApiOperationRule& rule,
                                 std::string_view model) const;

  const AccessPolicy policy_;
  const RestrictedApis restricted_;
};

}  // namespace nereid
