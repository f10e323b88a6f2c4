// Memory for the outputs of steps: written by one model, read in place by the next ones, freed when
// the last of them is through. Counted against the ensemble's limit. [any thread]
#pragma once

#include <memory>

#include "backends/ensemble/inflight_limiter.h"
#include "backends/ensemble/tensor.h"
#include "nereid/response_allocator.h"

namespace nereid::ensemble {

// A ResponseAllocator policy; the request's userp is a `const std::shared_ptr<InflightLimiter>*`.
// Always host memory, whatever the model would like.
struct StepBufferPolicy {
  static Result<OutputBuffer> Allocate(const OutputRequest& output, void* request_userp);
  static void Release(const OutputBuffer& buffer, size_t size_bytes);
};

// A further owner of a buffer that StepBufferPolicy made, by its OutputBuffer::userp.
BytesOwner ShareStepBuffer(void* userp);

}  // namespace nereid::ensemble
