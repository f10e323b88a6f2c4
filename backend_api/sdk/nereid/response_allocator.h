/// \file
/// Supplies the memory of response outputs. A Policy type implements it with static functions. This
/// header generates the C callbacks around them, so that no call costs more than the C API itself.
///
///   struct MyPolicy {
///     // [backend thread, concurrently] `request_userp` is InferRequest::SetCallbacks' userp.
///     static Result<OutputBuffer> Allocate(const OutputRequest& output, void* request_userp);
///     // [any thread] The response that owned the buffer was deleted.
///     static void Release(const OutputBuffer& buffer, size_t size_bytes);
///     // [backend thread, concurrently] Optional. Returns the OutputBuffer::userp for Release,
///     // which then ends the lease. Null declines: the backend copies the output instead.
///     static void* AcceptLease(const LeasedOutput& output, void* request_userp);
///   };
///   auto allocator = ResponseAllocator::Create<MyPolicy>();
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "nereid/error.h"
#include "nereid/ext/leased_output.h"
#include "triton/core/tritonserver.h"

namespace nereid {

struct OutputRequest {
  const char* tensor_name;
  size_t size_bytes;
  /// The memory that the backend prefers; the policy may choose another.
  TRITONSERVER_MemoryType memory_type;
  int64_t memory_type_id;
};

struct OutputBuffer {
  void* base;  ///< may be null if size_bytes is 0
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  void* userp = nullptr;  ///< passed to Release and to OutputView
};

/// Output memory that the backend leases to the client (nereid/ext/leased_output.h). The one who
/// accepts it calls Release() once.
struct LeasedOutput {
  const char* tensor_name;
  const void* base;
  size_t size_bytes;
  NEREID_ReleaseFn_t release_fn;
  void* release_userp;

  void Release() const { release_fn(release_userp); }
};

/// Host memory from the heap: one block for each output, aligned to a cache line.
struct HeapOutputPolicy {
  static Result<OutputBuffer> Allocate(const OutputRequest& output, void*) {
    if (output.size_bytes == 0) return OutputBuffer{nullptr};
    const size_t rounded_bytes = (output.size_bytes + 63) / 64 * 64;
    void* base =
        rounded_bytes < output.size_bytes ? nullptr : std::aligned_alloc(64, rounded_bytes);
    if (base == nullptr) {
      return UnavailableError("output '", output.tensor_name, "': cannot allocate ",
                              output.size_bytes, " bytes");
    }
    return OutputBuffer{base};
  }
  static void Release(const OutputBuffer& buffer, size_t) { std::free(buffer.base); }
};

/// Outlives every request that uses it, and their responses.
class ResponseAllocator {
 public:
  template <typename Policy>
  static Result<ResponseAllocator> Create() {
    TRITONSERVER_ResponseAllocator* allocator = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ResponseAllocatorNew(
        &allocator, &AllocateWith<Policy>, &ReleaseWith<Policy>, nullptr)));
    ResponseAllocator result(allocator);
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_ResponseAllocatorSetQueryFunction(allocator, &ReturnHostMemory)));
    if constexpr (requires { &Policy::AcceptLease; }) {
      if (const auto set_accept_function = FindSetAdoptFunction(); set_accept_function != nullptr) {
        NEREID_RETURN_IF_ERROR(ToStatus(set_accept_function(allocator, &AcceptLeaseWith<Policy>)));
      }
    }
    return result;
  }

  TRITONSERVER_ResponseAllocator* get() const { return allocator_.get(); }

 private:
  explicit ResponseAllocator(TRITONSERVER_ResponseAllocator* allocator) : allocator_(allocator) {}

  template <typename Policy>
  static TRITONSERVER_Error* AllocateWith(TRITONSERVER_ResponseAllocator*, const char* tensor_name,
                                          size_t size_bytes, TRITONSERVER_MemoryType memory_type,
                                          int64_t memory_type_id, void* request_userp,
                                          void** buffer, void** buffer_userp,
                                          TRITONSERVER_MemoryType* actual_memory_type,
                                          int64_t* actual_memory_type_id) {
    try {
      Result<OutputBuffer> output =
          Policy::Allocate({tensor_name, size_bytes, memory_type, memory_type_id}, request_userp);
      if (!output.ok()) return ToError(output.status());
      *buffer = output->base;
      *buffer_userp = output->userp;
      *actual_memory_type = output->memory_type;
      *actual_memory_type_id = output->memory_type_id;
      return nullptr;
    } catch (const std::bad_alloc&) {
      return ToError(
          UnavailableError("output '", tensor_name, "': cannot allocate ", size_bytes, " bytes"));
    }
  }

  template <typename Policy>
  static TRITONSERVER_Error* ReleaseWith(TRITONSERVER_ResponseAllocator*, void* buffer,
                                         void* buffer_userp, size_t size_bytes,
                                         TRITONSERVER_MemoryType memory_type,
                                         int64_t memory_type_id) {
    Policy::Release({buffer, memory_type, memory_type_id, buffer_userp}, size_bytes);
    return nullptr;
  }

  template <typename Policy>
  static void* AcceptLeaseWith(const char* tensor_name, const void* base, size_t size_bytes,
                               NEREID_ReleaseFn_t release_fn, void* release_userp,
                               void* request_userp) {
    try {
      return Policy::AcceptLease({tensor_name, base, size_bytes, release_fn, release_userp},
                                 request_userp);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  /// Answers a backend's query for the memory of an output: always host memory.
  static TRITONSERVER_Error* ReturnHostMemory(TRITONSERVER_ResponseAllocator*, void*, const char*,
                                              size_t*, TRITONSERVER_MemoryType* memory_type,
                                              int64_t* memory_type_id) {
    *memory_type = TRITONSERVER_MEMORY_CPU;
    *memory_type_id = 0;
    return nullptr;
  }

  struct Deleter {
    void operator()(TRITONSERVER_ResponseAllocator* allocator) const {
      (void)ToStatus(TRITONSERVER_ResponseAllocatorDelete(allocator));
    }
  };
  std::unique_ptr<TRITONSERVER_ResponseAllocator, Deleter> allocator_;
};

}  // namespace nereid
