// The plan of a step on the device: the planner's words, then the draws and the logits that rules
// change, uploaded in one copy; and the embeddings of virtual tokens, which the device reads from
// host memory. The host's buffers exist twice, because the copy of the step before may still run.
// [engine thread]
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/gpu_llm/comm/peer_group.h"
#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/draw_plan.h"
#include "nereid/status.h"

namespace nereid::gpu {

class StepUpload {
 public:
  StepUpload() = default;
  // For plans of up to `max_words` words, `max_items` draws and `max_edits` changed logits.
  // `group`: the GPUs that share every step, borrowed; null: a single GPU.
  static Result<StepUpload> Create(int64_t max_words, int32_t max_items, int32_t max_edits,
                                   PeerGroup* group = nullptr);

  // Starts the copy of a step. The previous step of this buffer (0 or 1) has completed.
  Status Start(std::span<const int32_t> words, std::span<const DrawItem> items,
               std::span<const LogitEdit> edits, int32_t buffer_index, cudaStream_t stream);
  // Rounds rows of `row_size` values to bf16. Returns them, one after the other, in memory that the
  // device can read until the next step of this buffer; null if there are none.
  Result<const __nv_bfloat16*> WritePromptRows(std::span<const std::span<const float>> rows,
                                               int32_t row_size, int32_t buffer_index,
                                               cudaStream_t stream);

  // Of the newest step, on the device.
  const int32_t* words() const { return device_.as<int32_t>(); }
  const DrawItem* items() const {
    return reinterpret_cast<const DrawItem*>(device_.as<char>() + items_at_);
  }
  LogitEdit* edits() const { return reinterpret_cast<LogitEdit*>(device_.as<char>() + edits_at_); }
  size_t device_bytes() const { return device_.size_bytes(); }
  // Without the rows of prompts.
  size_t pinned_bytes() const { return host_[0].size_bytes() + host_[1].size_bytes(); }

 private:
  // Makes room for so many bytes of prompts' rows.
  Status Grow(PinnedMemory& memory, size_t size_bytes, cudaStream_t stream);

  PeerGroup* group_ = nullptr;
  DeviceMemory device_;
  std::array<PinnedMemory, 2> host_;
  std::array<PinnedMemory, 2> prompt_rows_;  // bf16; grow with the largest step
  size_t items_at_ = 0, edits_at_ = 0;       // bytes, of the newest step
};

}  // namespace nereid::gpu
