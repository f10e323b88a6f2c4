// grpc.reflection: what the endpoint serves, as descriptors, for clients that have no .proto files.
#pragma once

#include "host/frontend/grpc/long_calls.h"
#include "host/frontend/grpc/method_table.h"

namespace nereid {

// Adds the calls of versions v1 and v1alpha, whose messages are the same, to `table`. `long_calls`
// outlives them.
void AddReflection(LongCalls& long_calls, MethodTable& table);

}  // namespace nereid
