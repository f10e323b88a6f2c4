#include "backends/ensemble/step_buffer.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "base/mapped_blocks.h"

namespace nereid::ensemble {
namespace {

constexpr size_t kAlignment = 64;

constexpr size_t RoundUp(size_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

// Allocates one object with a buffer for a tensor's bytes behind it. The tensor, its reference
// count and its bytes are thus one allocation.
template <typename T>
struct TrailingBufferAllocator {
  using value_type = T;

  TrailingBufferAllocator(size_t size, void** place) : size_bytes(size), bytes(place) {}
  template <typename U>
  TrailingBufferAllocator(const TrailingBufferAllocator<U>& other)
      : size_bytes(other.size_bytes), bytes(other.bytes) {}

  T* allocate(size_t count) {
    const size_t begin = RoundUp(count * sizeof(T));
    const size_t all_bytes = begin + RoundUp(size_bytes);
    void* memory = size_bytes >= MappedBlocks::kMinBytes
                       ? MappedBlocks::Allocate(all_bytes)
                       : std::aligned_alloc(kAlignment, all_bytes);
    if (memory == nullptr) throw std::bad_alloc();
    *bytes = static_cast<char*>(memory) + begin;
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) {
    if (size_bytes < MappedBlocks::kMinBytes) return std::free(memory);
    MappedBlocks::Free(memory, RoundUp(count * sizeof(T)) + RoundUp(size_bytes));
  }
  friend bool operator==(const TrailingBufferAllocator&, const TrailingBufferAllocator&) {
    return true;
  }

  size_t size_bytes;
  void** bytes;  // receives the address of the buffer; unused after allocate
};

struct StepTensor : Tensor {
  StepTensor(std::shared_ptr<InflightLimiter> owner, size_t size)
      : limiter(std::move(owner)), size_bytes(size) {
    limiter->OnBytesHeld(size_bytes);
  }
  ~StepTensor() { limiter->OnBytesFreed(size_bytes); }

  const std::shared_ptr<InflightLimiter> limiter;
  const size_t size_bytes;
  std::shared_ptr<StepTensor> response_share;  // the reference of the response that has the buffer
};

}  // namespace

Result<OutputBuffer> StepBufferPolicy::Allocate(const OutputRequest& output, void* request_userp) {
  if (output.size_bytes == 0) return OutputBuffer{nullptr};
  if (output.size_bytes > PTRDIFF_MAX / 2) throw std::bad_alloc();
  const auto& limiter = *static_cast<const std::shared_ptr<InflightLimiter>*>(request_userp);
  void* bytes = nullptr;
  auto tensor = std::allocate_shared<StepTensor>(
      TrailingBufferAllocator<StepTensor>(output.size_bytes, &bytes), limiter, output.size_bytes);
  StepTensor* const userp = tensor.get();
  userp->response_share = std::move(tensor);
  return OutputBuffer{.base = bytes, .userp = userp};
}

void StepBufferPolicy::Release(const OutputBuffer& buffer, size_t) {
  if (buffer.userp == nullptr) return;
  const auto dropped = std::move(static_cast<StepTensor*>(buffer.userp)->response_share);
}

std::shared_ptr<Tensor> TensorOfStepBuffer(void* userp) {
  return static_cast<StepTensor*>(userp)->response_share;
}

}  // namespace nereid::ensemble
