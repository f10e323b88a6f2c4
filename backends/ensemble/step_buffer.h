// Memory for the outputs of steps. One model writes it, the next ones read it in place, and it is
// freed after the last of them. It counts against the ensemble's limit. [any thread]
#pragma once

#include <memory>

#include "backends/ensemble/inflight_limiter.h"
#include "backends/ensemble/tensor.h"
#include "nereid/response_allocator.h"

namespace nereid::ensemble {

// A ResponseAllocator policy. The request's userp is a `const std::shared_ptr<InflightLimiter>*`.
// Always provides host memory, whatever the model prefers.
struct StepBufferPolicy {
  static Result<OutputBuffer> Allocate(const OutputRequest& output, void* request_userp);
  static void Release(const OutputBuffer& buffer, size_t size_bytes);
};

// The tensor that was allocated together with a buffer of StepBufferPolicy, by its
// OutputBuffer::userp. The reader of the response sets its type and shape. Call it while the
// buffer's response exists.
std::shared_ptr<Tensor> TensorOfStepBuffer(void* userp);

}  // namespace nereid::ensemble
