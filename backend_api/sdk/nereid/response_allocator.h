// Where the outputs of responses go. A Policy type supplies the memory through static functions;
// the C callbacks around it are generated here, so that no call costs more than the C API itself.
//
//   struct MyPolicy {
//     // [backend thread, concurrently] `request_userp` is what the request's callback was set
//     with. static Result<OutputBuffer> Allocate(const OutputRequest& output, void* request_userp);
//     // [any thread] The response that held the buffer died.
//     static void Release(const OutputBuffer& buffer, size_t size_bytes);
//     // [backend thread, concurrently] May be left out. What Release finds in the buffer's userp,
//     // to end the loan; null: the backend is to copy the output.
//     static void* Adopt(const LentOutput& output, void* request_userp);
//   };
//   auto allocator = ResponseAllocator::Create<MyPolicy>();
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "nereid/error.h"
#include "nereid/ext/lent_output.h"
#include "triton/core/tritonserver.h"

namespace nereid {
inline namespace sdk {  // the core has classes of the same names; both may meet in one program

struct OutputRequest {
  const char* tensor_name;
  size_t size_bytes;
  // What the backend would like; the policy may choose otherwise.
  TRITONSERVER_MemoryType memory_type;
  int64_t memory_type_id;
};

struct OutputBuffer {
  void* base;  // may be null when size_bytes is 0
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  void* userp = nullptr;  // comes back in Release and in OutputView
};

// Memory of a backend's own that holds an output; who takes it gives it back.
struct LentOutput {
  const char* tensor_name;
  const void* base;
  size_t size_bytes;
  NEREID_GiveBackFn_t give_back;
  void* lender_userp;

  void GiveBack() const { give_back(lender_userp); }
};

// Plain host memory, one block an output, aligned to a cache line.
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

// Outlives every request that names it, and their responses.
class ResponseAllocator {
 public:
  template <typename Policy>
  static Result<ResponseAllocator> Create() {
    TRITONSERVER_ResponseAllocator* allocator = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ResponseAllocatorNew(
        &allocator, &AllocateWith<Policy>, &ReleaseWith<Policy>, nullptr)));
    ResponseAllocator result(allocator);
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_ResponseAllocatorSetQueryFunction(allocator, &AnswerHostMemory)));
    if constexpr (requires { &Policy::Adopt; }) {
      if (const auto set_adopt_function = FindSetAdoptFunction(); set_adopt_function != nullptr) {
        NEREID_RETURN_IF_ERROR(ToStatus(set_adopt_function(allocator, &AdoptWith<Policy>)));
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
  static void* AdoptWith(const char* tensor_name, const void* base, size_t size_bytes,
                         NEREID_GiveBackFn_t give_back, void* lender_userp, void* request_userp) {
    try {
      return Policy::Adopt({tensor_name, base, size_bytes, give_back, lender_userp}, request_userp);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  // A backend that asks beforehand where an output will lie is told: in host memory.
  static TRITONSERVER_Error* AnswerHostMemory(TRITONSERVER_ResponseAllocator*, void*, const char*,
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

}  // namespace sdk
}  // namespace nereid
