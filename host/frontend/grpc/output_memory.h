// Memory of response outputs: host memory, or memory leased by a backend. The response and the
// bytes being sent share ownership of it, so that no output is copied. [any thread]
#pragma once

#include <atomic>
#include <vector>

#include "host/frontend/grpc/call.h"
#include "host/frontend/shared_memory.h"
#include "nereid/response_allocator.h"

namespace nereid {

// Output destinations of one request. Outlives the request in flight and its responses.
struct OutputPlan {
  std::vector<SharedOutput> shared;
  // Size in bytes of the outputs outside shared memory. The reader resets it.
  std::atomic<size_t> num_allocated{0};
};

// Policy of the ResponseAllocator. The userp of a request's callbacks is its OutputPlan.
struct OutputMemory {
  static Result<OutputBuffer> Allocate(const OutputRequest& output, void* plan);
  static void Release(const OutputBuffer& buffer, size_t size_bytes);
  static void* AcceptLease(const LeasedOutput& output, void* plan);

  // Returns a slice over the first `size_bytes` of an output created by Allocate or AcceptLease.
  // `userp` is its OutputView::userp. The memory lives as long as the slice.
  static Slice Share(const void* base, size_t size_bytes, void* userp);
};

}  // namespace nereid
