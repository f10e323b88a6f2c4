// The GPUs that run one model together: what they have of each other's memory, and how the threads
// that drive them meet. Shared by the executors of its ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/gpu_llm/comm/rank_threads.h"
#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernels/rows/peer.h"
#include "nereid/status.h"

namespace nereid::gpu {

class PeerGroup {
 public:
  // UNSUPPORTED: one of them can not reach another's memory. The current device stays.
  static Result<std::unique_ptr<PeerGroup>> Create(std::span<const int32_t> devices);

  int32_t count() const { return static_cast<int32_t>(devices_.size()); }
  const std::vector<int32_t>& devices() const { return devices_; }

  // What the kernels of `rank` write and read on all GPUs. Every rank gives its own before they
  // meet, and may ask for all after. [the rank's thread]
  struct Buffers {
    __nv_bfloat16* parts = nullptr;
    __nv_bfloat16* residual = nullptr;
    __nv_bfloat16* normed = nullptr;
    float* logits = nullptr;
    int32_t* last_tokens = nullptr;
  };
  void Share(int32_t rank, const Buffers& buffers);
  const Peers& peers(int32_t rank);

  // As MeetingPlace. [the ranks' threads]
  Result<int64_t> Meet(int64_t value = 0) { return meeting_.Meet(value); }
  // A rank has failed: its peers wait no more, neither on the device nor here, now or later.
  // [any thread]
  void Stop();
  // Whether what the kernels did so far is worth anything. [any thread]
  Status status() const;

  int64_t memory_bytes() const;  // of all GPUs

 private:
  explicit PeerGroup(std::span<const int32_t> devices)
      : devices_(devices.begin(), devices.end()), meeting_(count()), peers_(devices.size()) {}
  Status Initialize();

  const std::vector<int32_t> devices_;
  MeetingPlace meeting_;
  PinnedMemory control_;
  std::vector<DeviceMemory> memory_;  // by rank: mail, flags, turns
  Peers all_ = {};                    // without what is a rank's own
  std::vector<Peers> peers_;
};

}  // namespace nereid::gpu
