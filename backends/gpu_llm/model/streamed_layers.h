// The layers whose weights stay in host memory, and where the bytes of a weight plan lie: device
// memory has the bytes of everything else without gaps, and behind them the buffers of
// WeightStream. While weights are loaded, those of these layers have their place in pinned memory.
// [load thread]
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/model/sharding.h"
#include "backends/gpu_llm/model/weight_stream.h"
#include "nereid/status.h"

namespace nereid::gpu {

class StreamedLayers {
 public:
  StreamedLayers(int32_t num_layers, double resident_fraction)
      : num_layers_(num_layers),
        num_streamed_(num_layers -
                      static_cast<int32_t>(std::lround(resident_fraction * num_layers))) {}

  // The next layer's bytes of the plan.
  void Add(int32_t layer, const IndexRange& bytes) {
    // The first layer is one of them, so that copies begin as soon as it has run.
    if (layer * num_streamed_ % num_layers_ >= num_streamed_) return;
    layers_.push_back({layer, host_bytes_, bytes.count});
    ranges_.push_back(bytes);
    host_bytes_ += bytes.count;
    buffer_bytes_ = std::max(buffer_bytes_, bytes.count);
  }

  int64_t DeviceBytes(int64_t plan_bytes) const {
    return plan_bytes - host_bytes_ + num_buffers() * buffer_bytes_;
  }
  Result<PinnedMemory> AllocateHost() const {
    if (layers_.empty()) return PinnedMemory();
    Result<PinnedMemory> host = PinnedMemory::Allocate(static_cast<size_t>(host_bytes_));
    if (host.ok()) return host;
    return UnavailableError("gpu_weights_percent: the weights of ", layers_.size(), " of ",
                            num_layers_, " layers need ", host_bytes_,
                            " bytes of pinned host memory: ", host.status().message());
  }

  // Of an offset of the plan.
  char* PlaceOf(int64_t offset, char* device, char* host) const {
    int64_t before = 0;  // bytes in host memory
    for (size_t i = 0; i < layers_.size() && ranges_[i].first <= offset; ++i) {
      if (offset < ranges_[i].first + ranges_[i].count)
        return host + layers_[i].host_offset + (offset - ranges_[i].first);
      before += ranges_[i].count;
    }
    return device + (offset - before);
  }

  // After the weights are loaded: moves the layers' pointers to the buffers.
  Status Start(PinnedMemory host, GpuWeights& weights) {
    if (layers_.empty()) return {};
    std::array<char*, WeightStream::kNumBuffers> buffers = {};
    char* const first =
        weights.memory.as<char>() + weights.memory.size_bytes() - num_buffers() * buffer_bytes_;
    for (int64_t i = 0; i < num_buffers(); ++i) buffers[i] = first + i * buffer_bytes_;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const char* const from = host.as<char>() + layers_[i].host_offset;
      const char* const to = buffers[i % WeightStream::kNumBuffers];
      VisitPointers(weights.layers[layers_[i].layer], [&](auto& pointer) {
        using Pointer = std::remove_reference_t<decltype(pointer)>;
        if (pointer != nullptr) {
          pointer = reinterpret_cast<Pointer>(to + (reinterpret_cast<const char*>(pointer) - from));
        }
      });
    }
    NEREID_ASSIGN_OR_RETURN(weights.stream,
                            WeightStream::Create(std::move(host), std::move(layers_), buffers));
    return {};
  }

 private:
  int64_t num_buffers() const {
    return std::min<int64_t>(WeightStream::kNumBuffers, static_cast<int64_t>(layers_.size()));
  }

  const int32_t num_layers_, num_streamed_;
  std::vector<WeightStream::Layer> layers_;
  std::vector<IndexRange> ranges_;  // of the plan, parallel to layers_
  int64_t host_bytes_ = 0, buffer_bytes_ = 0;
};

}  // namespace nereid::gpu
