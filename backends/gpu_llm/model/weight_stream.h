// Layers whose weights stay in pinned host memory: each is copied to one of two device buffers
// while the layers before it run. The copies of a step are ordered against its kernels by events on
// the stream, so that a recorded step contains them. [engine thread]
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "nereid/status.h"

namespace nereid::gpu {

class WeightStream {
 public:
  static constexpr int kNumBuffers = 2;
  struct Layer {
    int32_t layer = 0;        // of the decoder
    int64_t host_offset = 0;  // of its weights in the pinned memory
    int64_t size_bytes = 0;
  };

  // The weights of layers[i] belong to buffer i % kNumBuffers while the layer runs. `layers` are in
  // the order in which they run; `buffers` are borrowed device memory for the largest of them. Up
  // to kNumBuffers layers stay where they are, without copies.
  static Result<std::unique_ptr<WeightStream>> Create(
      PinnedMemory host, std::vector<Layer> layers, const std::array<char*, kNumBuffers>& buffers);

  // Around the kernels of each layer of a step; layers that are not streamed are left alone.
  Status Begin(int32_t layer, cudaStream_t stream);
  Status End(int32_t layer, cudaStream_t stream);
  // After the last layer: later work of the stream waits for the first layers of the next step.
  Status Finish(cudaStream_t stream);

  int64_t pinned_bytes() const { return static_cast<int64_t>(host_.size_bytes()); }
  // Bytes that each step copies.
  int64_t step_bytes() const;

 private:
  WeightStream() = default;
  bool copies() const { return layers_.size() > kNumBuffers; }
  // The index in layers_; -1: the layer is not streamed.
  int IndexOf(int32_t layer) const;
  Status Copy(int index, cudaStream_t stream);

  PinnedMemory host_;
  std::vector<Layer> layers_;
  std::array<char*, kNumBuffers> buffers_ = {};
  Stream copy_stream_;
  // Of each buffer: the layer in it has run, and the next one is there.
  std::array<Event, kNumBuffers> computed_, copied_;
};

}  // namespace nereid::gpu
