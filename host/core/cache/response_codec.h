// A response as the bytes that a cache keeps: one buffer of outputs with name, type, shape and
// content. The bytes come back from a plug-in and are checked as a stranger's. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "host/core/request/infer_response.h"
#include "nereid/status.h"

namespace nereid {

// Whether a cache may keep the response: it is no error.
bool IsCacheable(const InferResponse& response);
size_t EncodedSize(const InferResponse& response);
// `target` has EncodedSize bytes, in host memory; outputs may lie anywhere.
Status Encode(const InferResponse& response, std::span<std::byte> target);
// Adds the encoded outputs to an empty response, in buffers of its allocator. INVALID_ARG when the
// bytes are not what Encode wrote for this model; UNAVAILABLE when the allocator gives no memory.
Status Decode(std::span<const std::byte> encoded, InferResponse* response);

}  // namespace nereid
