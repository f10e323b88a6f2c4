// Allocates output memory: one block per output, or the shared memory that the request names.
// Leased output of a backend is sent without a copy. [any thread]
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "base/mapped_blocks.h"
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
    if (output.size_bytes >= MappedBlocks::kMinBytes) return AllocateMapped(output);
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
    if (buffer.userp == MappedTag(buffer.base)) {
      char* const block = static_cast<char*>(buffer.base) - kHeaderBytes;
      return MappedBlocks::Free(block, *reinterpret_cast<size_t*>(block));
    }
    const std::unique_ptr<LeasedOutput> lent(static_cast<LeasedOutput*>(buffer.userp));
    if (lent != nullptr) lent->Release();  // otherwise the output is in shared memory
  }

 private:
  // The header in front of mapped memory contains the size of both.
  static constexpr size_t kHeaderBytes = 64;
  // The userp of mapped memory, which is no object's address.
  static void* MappedTag(void* base) { return static_cast<char*>(base) + 1; }
  static Result<OutputBuffer> AllocateMapped(const nereid::OutputRequest& output) {
    const size_t block_bytes = output.size_bytes + kHeaderBytes;
    void* const block = block_bytes < kHeaderBytes ? nullptr : MappedBlocks::Allocate(block_bytes);
    if (block == nullptr) {
      return UnavailableError("output '", output.tensor_name, "': cannot allocate ",
                              output.size_bytes, " bytes");
    }
    *static_cast<size_t*>(block) = block_bytes;
    void* const base = static_cast<char*>(block) + kHeaderBytes;
    return OutputBuffer{.base = base, .userp = MappedTag(base)};
  }
};

}  // namespace nereid::http
