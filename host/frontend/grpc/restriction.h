// Whether a caller knows the secret of a restricted group of calls. [gRPC threads]
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "restricted_apis.h"

namespace nereid {

// As Triton has it: a key's header carries this prefix.
inline std::string RestrictionHeader(const RestrictedApis::Secret& secret) {
  return "triton-grpc-protocol-" + secret.key;
}

inline bool IsAllowed(const RestrictedApis& restricted, ApiGroup group,
                      const grpc::CallbackServerContext& call) {
  const RestrictedApis::Secret* const secret = restricted.Find(group);
  if (secret == nullptr) return true;
  const auto found = call.client_metadata().find(RestrictionHeader(*secret));
  return found != call.client_metadata().end() &&
         secret->Matches({found->second.data(), found->second.size()});
}

// Requires that the group is restricted.
inline grpc::Status Restricted(const RestrictedApis& restricted, ApiGroup group) {
  return {grpc::StatusCode::UNAVAILABLE, "This protocol is restricted, expecting header '" +
                                             RestrictionHeader(*restricted.Find(group)) + "'"};
}

}  // namespace nereid
