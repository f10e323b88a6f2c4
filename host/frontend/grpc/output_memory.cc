// See output_memory.h.
#include "host/frontend/grpc/output_memory.h"

#include <cstdlib>
#include <limits>
#include <new>

#include "base/mapped_blocks.h"

namespace nereid {
namespace {

constexpr size_t kAlignment = 64;

// Reference count of one output. It precedes the output's bytes in the same allocation; for leased
// memory it is allocated alone.
struct alignas(kAlignment) OutputBlock {
  std::atomic<uint32_t> num_owners{1};
  LeasedOutput lease{};     // release_fn is null if the bytes belong to this allocation
  size_t mapped_bytes = 0;  // of this allocation; 0 if it is in the heap
};

void Unref(void* userp) {
  auto* block = static_cast<OutputBlock*>(userp);
  if (block->num_owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (block->lease.release_fn != nullptr) block->lease.Release();
  const size_t mapped_bytes = block->mapped_bytes;
  block->~OutputBlock();
  if (mapped_bytes != 0) return MappedBlocks::Free(block, mapped_bytes);
  std::free(block);
}

}  // namespace

Result<OutputBuffer> OutputMemory::Allocate(const OutputRequest& output, void* plan_userp) {
  auto& plan = *static_cast<OutputPlan*>(plan_userp);
  if (!plan.shared.empty()) {
    Result<OutputBuffer> buffer = AllocateShared(plan.shared, output);
    if (!buffer.ok() || buffer->base != nullptr) return buffer;
  }
  constexpr size_t kMaxBytes = std::numeric_limits<size_t>::max() / 2;
  const size_t rounded_bytes =
      (output.size_bytes + kAlignment - 1) / kAlignment * kAlignment + sizeof(OutputBlock);
  const bool is_mapped = output.size_bytes >= MappedBlocks::kMinBytes;
  void* memory = nullptr;
  if (output.size_bytes <= kMaxBytes) {
    memory = is_mapped ? MappedBlocks::Allocate(rounded_bytes)
                       : std::aligned_alloc(kAlignment, rounded_bytes);
  }
  if (memory == nullptr) {
    return UnavailableError("output '", output.tensor_name, "': cannot allocate ",
                            output.size_bytes, " bytes");
  }
  plan.num_allocated.fetch_add(output.size_bytes, std::memory_order_relaxed);
  auto* const block = new (memory) OutputBlock;
  if (is_mapped) block->mapped_bytes = rounded_bytes;
  return OutputBuffer{.base = block + 1, .userp = block};
}

void* OutputMemory::AcceptLease(const LeasedOutput& output, void* plan_userp) {
  auto& plan = *static_cast<OutputPlan*>(plan_userp);
  if (FindShared(plan.shared, output.tensor_name) != nullptr) return nullptr;
  void* const memory = std::aligned_alloc(kAlignment, sizeof(OutputBlock));
  if (memory == nullptr) return nullptr;
  plan.num_allocated.fetch_add(output.size_bytes, std::memory_order_relaxed);
  auto* const block = new (memory) OutputBlock;
  block->lease = output;
  return block;
}

void OutputMemory::Release(const OutputBuffer& buffer, size_t) {
  if (buffer.userp != nullptr) Unref(buffer.userp);  // null for outputs in shared memory
}

Slice OutputMemory::Share(const void* base, size_t size_bytes, void* userp) {
  static_cast<OutputBlock*>(userp)->num_owners.fetch_add(1, std::memory_order_relaxed);
  return {{static_cast<const char*>(base), size_bytes}, std::shared_ptr<const void>(userp, &Unref)};
}

}  // namespace nereid
