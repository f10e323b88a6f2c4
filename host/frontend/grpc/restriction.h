// Whether a caller knows the secret of a restricted group of calls. [loop threads]
#pragma once

#include <string>

#include "host/frontend/grpc/call.h"
#include "host/frontend/restricted_apis.h"

namespace nereid {

// As Triton has it: a key's header carries this prefix.
inline std::string RestrictionHeader(const RestrictedApis::Secret& secret) {
  return "triton-grpc-protocol-" + secret.key;
}

inline bool IsAllowed(const RestrictedApis& restricted, ApiGroup group, const Call& call) {
  const RestrictedApis::Secret* const secret = restricted.Find(group);
  if (secret == nullptr) return true;
  const std::string_view* const found = call.FindMetadata(RestrictionHeader(*secret));
  return found != nullptr && secret->Matches(*found);
}

// Requires that the group is restricted.
inline CallStatus Restricted(const RestrictedApis& restricted, ApiGroup group) {
  return {GrpcCode::kUnavailable, "This protocol is restricted, expecting header '" +
                                      RestrictionHeader(*restricted.Find(group)) + "'"};
}

}  // namespace nereid
