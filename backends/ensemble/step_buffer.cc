#include "backends/ensemble/step_buffer.h"

#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

namespace nereid::ensemble {
namespace {

constexpr size_t kAlignment = 64;

// Lies before the bytes, in the same allocation.
struct alignas(kAlignment) Header {
  Header(std::shared_ptr<InflightLimiter> owner, size_t size)
      : limiter(std::move(owner)), size_bytes(size) {
    limiter->OnBytesHeld(size_bytes);
  }
  ~Header() { limiter->OnBytesFreed(size_bytes); }

  std::shared_ptr<InflightLimiter> limiter;
  size_t size_bytes;
  std::atomic<uint32_t> num_owners{1};
};

void Drop(Header* header) {
  if (header->num_owners.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  header->~Header();
  std::free(header);
}

}  // namespace

Result<OutputBuffer> StepBufferPolicy::Allocate(const OutputRequest& output, void* request_userp) {
  if (output.size_bytes == 0) return OutputBuffer{nullptr};
  const size_t total =
      sizeof(Header) + (output.size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = total < output.size_bytes ? nullptr : std::aligned_alloc(kAlignment, total);
  if (memory == nullptr) {
    return UnavailableError("output '", output.tensor_name, "': cannot allocate ",
                            output.size_bytes, " bytes");
  }
  const auto& limiter = *static_cast<const std::shared_ptr<InflightLimiter>*>(request_userp);
  auto* header = new (memory) Header(limiter, output.size_bytes);
  return OutputBuffer{.base = header + 1, .userp = header};
}

void StepBufferPolicy::Release(const OutputBuffer& buffer, size_t) {
  if (buffer.userp != nullptr) Drop(static_cast<Header*>(buffer.userp));
}

BytesOwner ShareStepBuffer(void* userp) {
  if (userp == nullptr) return {nullptr, nullptr};
  auto* header = static_cast<Header*>(userp);
  header->num_owners.fetch_add(1, std::memory_order_relaxed);
  return {userp, [](void* memory) { Drop(static_cast<Header*>(memory)); }};
}

}  // namespace nereid::ensemble
