// Where outputs go: into host memory, one block an output, or into the shared memory that the
// request names. [any thread]
#pragma once

#include <vector>

#include "host/frontend/shared_memory.h"
#include "nereid/response_allocator.h"

namespace nereid::http {

// The userp of a request is null, or points to its std::vector<SharedOutput>.
struct OutputPolicy {
  static Result<OutputBuffer> Allocate(const nereid::OutputRequest& output, void* shared) {
    if (shared != nullptr) {
      Result<OutputBuffer> buffer =
          AllocateShared(*static_cast<const std::vector<SharedOutput>*>(shared), output);
      if (!buffer.ok() || buffer->base != nullptr) return buffer;
    }
    NEREID_ASSIGN_OR_RETURN(OutputBuffer buffer, HeapOutputPolicy::Allocate(output, nullptr));
    buffer.userp = buffer.base;
    return buffer;
  }
  static void Release(const OutputBuffer& buffer, size_t) { std::free(buffer.userp); }
};

}  // namespace nereid::http
