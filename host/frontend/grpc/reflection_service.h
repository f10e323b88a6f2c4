// The service grpc.reflection: returns descriptors of the endpoint's services to clients without
// .proto files.
#pragma once

#include "host/frontend/access_control.h"
#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/drainable_calls.h"

namespace nereid {

// Adds the methods of versions v1 and v1alpha, whose messages are identical, to `table`.
// The other references outlive them.
void AddReflection(const AccessControl& access, DrainableCalls& drainable_calls,
                   MethodTable& table);

}  // namespace nereid
