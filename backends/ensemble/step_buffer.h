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

// The tensor that keeps a buffer of StepBufferPolicy, by its OutputBuffer::userp: made with the
// buffer, for the buffer's reader to fill in. While the buffer's response lives.
std::shared_ptr<Tensor> TensorOfStepBuffer(void* userp);

}  // namespace nereid::ensemble
