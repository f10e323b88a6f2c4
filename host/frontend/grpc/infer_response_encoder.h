// From a response of the core to the bytes of a ModelInferResponse or ModelStreamInferResponse.
// Large outputs are referenced, never copied. Called by unary and stream inference. [any thread]
#pragma once

#include <string_view>

#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/infer_context.h"
#include "nereid/infer_response.h"
#include "nereid/status.h"

namespace nereid {

// Of a ModelInfer call. The response's own error comes back as the Status.
Result<WireMessage> EncodeUnaryResponse(const InferResponse& response, const InferParts& parts);

// One message of a ModelStreamInfer call; it tells whether it is the request's last.
Result<WireMessage> EncodeStreamResponse(const InferResponse& response, const InferParts& parts,
                                         bool is_final);

// The end of a decoupled request that has no response of its own.
WireMessage EncodeEmptyFinal(std::string_view model, std::string_view id);

// An error within a stream. Before a request reached its model `model` is empty, and `is_final`
// does not matter.
WireMessage EncodeStreamError(const Status& error, std::string_view model, std::string_view id,
                              bool is_final);

}  // namespace nereid
