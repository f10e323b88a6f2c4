#include "backends/gpu_llm/step_upload.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/plan_upload.h"

namespace nereid::gpu {
namespace {

// The parts of a plan start at multiples of 16 bytes.
constexpr size_t kPlanAlign = 16;
constexpr size_t Aligned(size_t size_bytes) {
  return (size_bytes + kPlanAlign - 1) / kPlanAlign * kPlanAlign;
}

}  // namespace

Result<StepUpload> StepUpload::Create(int64_t max_words, int32_t max_items, int32_t max_edits,
                                      PeerGroup* group) {
  StepUpload upload;
  upload.group_ = group;
  const size_t size_bytes = Aligned(static_cast<size_t>(max_words) * sizeof(int32_t)) +
                            Aligned(static_cast<size_t>(max_items) * sizeof(DrawItem)) +
                            static_cast<size_t>(max_edits) * sizeof(LogitEdit) + kPlanCopyUnit;
  NEREID_ASSIGN_OR_RETURN(upload.device_, DeviceMemory::Allocate(size_bytes, "the step's plan"));
  for (PinnedMemory& memory : upload.host_) {
    NEREID_ASSIGN_OR_RETURN(memory, PinnedMemory::Allocate(size_bytes));
  }
  return upload;
}

Status StepUpload::Start(std::span<const int32_t> words, std::span<const DrawItem> items,
                         std::span<const LogitEdit> edits, int32_t buffer_index,
                         cudaStream_t stream) {
  items_at_ = Aligned(words.size_bytes());
  edits_at_ = items_at_ + Aligned(items.size_bytes());
  const size_t size_bytes = items.empty() ? words.size_bytes() : edits_at_ + edits.size_bytes();
  if (size_bytes + kPlanCopyUnit > device_.size_bytes()) {
    return InternalError("a step's plan takes ", size_bytes, " bytes, but its buffer has ",
                         device_.size_bytes() - kPlanCopyUnit);
  }
  char* const to = host_[buffer_index].as<char>();
  std::memcpy(to, words.data(), words.size_bytes());
  if (!items.empty()) {
    std::memcpy(to + items_at_, items.data(), items.size_bytes());
    std::memcpy(to + edits_at_, edits.data(), edits.size_bytes());
  }
  return UploadPlan(device_.data(), to, size_bytes, stream);
}

// All GPUs of a group call this in the same step. An allocation may wait for all GPUs, so none of
// them may wait for this one meanwhile.
Status StepUpload::Grow(PinnedMemory& memory, size_t size_bytes, cudaStream_t stream) {
  if (group_ != nullptr) {
    NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
    NEREID_RETURN_IF_ERROR(group_->WaitForAll().status());
  }
  memory = PinnedMemory();
  NEREID_ASSIGN_OR_RETURN(memory, PinnedMemory::Allocate(std::bit_ceil(size_bytes)));
  return group_ == nullptr ? Status() : group_->WaitForAll().status();
}

// The kernel reads the rows where they are: each once, so that a copy on the device saves nothing.
Result<const __nv_bfloat16*> StepUpload::WritePromptRows(
    std::span<const std::span<const float>> rows, int32_t row_size, int32_t buffer_index,
    cudaStream_t stream) {
  if (rows.empty()) return static_cast<const __nv_bfloat16*>(nullptr);
  PinnedMemory& memory = prompt_rows_[buffer_index];
  const size_t size_bytes = rows.size() * static_cast<size_t>(row_size) * sizeof(__nv_bfloat16);
  if (size_bytes > memory.size_bytes()) NEREID_RETURN_IF_ERROR(Grow(memory, size_bytes, stream));
  auto* to = memory.as<__nv_bfloat16>();
  for (const std::span<const float> row : rows) {
    to = std::transform(row.begin(), row.end(), to,
                        [](float value) { return __float2bfloat16_rn(value); });
  }
  return memory.as<const __nv_bfloat16>();
}

}  // namespace nereid::gpu
