// Encodes a core response as a ModelInferResponse or ModelStreamInferResponse. Large outputs are
// referenced, never copied. Called by unary and stream inference. [any thread]
#pragma once

#include <string_view>

#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/infer_context.h"
#include "nereid/infer_response.h"
#include "nereid/status.h"

namespace nereid {

// Encodes the response of a ModelInfer call. If the response carries an error, returns that error.
Result<WireMessage> EncodeUnaryResponse(const InferResponse& response,
                                        const RequestResources& resources);

// Encodes one message of a ModelStreamInfer call, including whether it is the request's final one.
Result<WireMessage> EncodeStreamResponse(const InferResponse& response,
                                         const RequestResources& resources, bool is_final);

// Encodes the end of a decoupled request whose final response is empty.
WireMessage EncodeEmptyFinal(std::string_view model, std::string_view id);

// Encodes an error of one request of a stream. If the request never reached its model, `model` is
// empty and `is_final` is ignored.
WireMessage EncodeStreamError(const Status& error, std::string_view model, std::string_view id,
                              bool is_final);

}  // namespace nereid
