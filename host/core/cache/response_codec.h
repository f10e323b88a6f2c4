// The binary format of a cached response: one buffer with name, type, shape and content of each
// output. The bytes come back from a plug-in and are parsed as untrusted input. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "host/core/request/infer_response.h"
#include "nereid/status.h"

namespace nereid::core {

// True if the response may be cached: it is not an error.
bool IsCacheable(const InferResponse& response);
size_t EncodedSize(const InferResponse& response);
// `target` must be host memory of EncodedSize bytes. Outputs may be in any memory.
Status EncodeResponse(const InferResponse& response, std::span<std::byte> target);
// Adds the encoded outputs to an empty response, in buffers from its allocator. INVALID_ARG if the
// bytes were not written by EncodeResponse for this model; UNAVAILABLE if the allocator returns no
// memory.
Status DecodeResponse(std::span<const std::byte> encoded, InferResponse* response);

}  // namespace nereid::core
