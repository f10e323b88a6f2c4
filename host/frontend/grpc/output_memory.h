// Where the outputs of responses live: blocks of host memory that a response and the bytes on their
// way to the client share, so that no output is copied. [any thread]
#pragma once

#include <grpcpp/support/slice.h>

#include <atomic>

#include "nereid/response_allocator.h"

namespace nereid {

// Policy of the ResponseAllocator. The userp of a request's callback, if any, points to the count
// of bytes allocated for it, std::atomic<size_t>.
struct OutputMemory {
  static Result<OutputBuffer> Allocate(const OutputRequest& output, void* num_allocated);
  static void Release(const OutputBuffer& buffer, size_t size_bytes);

  // A slice over `size_bytes` of an output that Allocate made, named by its OutputView::userp; the
  // memory lives as long as the slice.
  static grpc::Slice Share(const void* base, size_t size_bytes, void* userp);
};

}  // namespace nereid
