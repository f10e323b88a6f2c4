// Where the outputs of responses live: blocks of host memory, or memory that a backend lends, which
// a response and the bytes on their way to the client share, so that no output is copied.
// [any thread]
#pragma once

#include <atomic>
#include <vector>

#include "host/frontend/grpc/call.h"
#include "host/frontend/shared_memory.h"
#include "nereid/response_allocator.h"

namespace nereid {

// Where the outputs of one request go; outlives the request in flight and its responses.
struct OutputPlan {
  std::vector<SharedOutput> shared;
  std::atomic<size_t> num_allocated{0};  // bytes of the other outputs; who counts resets it
};

// Policy of the ResponseAllocator; the userp of a request's callback is its OutputPlan.
struct OutputMemory {
  static Result<OutputBuffer> Allocate(const OutputRequest& output, void* plan);
  static void Release(const OutputBuffer& buffer, size_t size_bytes);
  static void* Adopt(const LentOutput& output, void* plan);

  // A slice over `size_bytes` of an output that Allocate or Adopt made, named by its
  // OutputView::userp; the memory lives as long as the slice.
  static Slice Share(const void* base, size_t size_bytes, void* userp);
};

}  // namespace nereid
