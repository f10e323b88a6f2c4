// Allocates output memory: one heap block per output, or the shared memory that the request names.
// Leased output of a backend is sent without a copy. [any thread]
#pragma once

#include <cstdlib>
#include <memory>
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
  static void* AcceptLease(const LeasedOutput& output, void* shared) {
    if (shared != nullptr &&
        FindShared(*static_cast<const std::vector<SharedOutput>*>(shared), output.tensor_name)) {
      return nullptr;
    }
    return new LeasedOutput(output);
  }
  static void Release(const OutputBuffer& buffer, size_t) {
    if (buffer.userp == buffer.base) return std::free(buffer.base);
    const std::unique_ptr<LeasedOutput> lent(static_cast<LeasedOutput*>(buffer.userp));
    if (lent != nullptr) lent->Release();  // otherwise the output is in shared memory
  }
};

}  // namespace nereid::http
