// The GPUs that run one model together: their peer memory, and a barrier of the threads that drive
// them. Shared by the executors of all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/gpu_llm/comm/rank_threads.h"
#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernels/comm/all_reduce.h"
#include "nereid/status.h"

namespace nereid::gpu {

class PeerGroup {
 public:
  // UNSUPPORTED if a GPU cannot access another one's memory. The current device does not change.
  static Result<std::unique_ptr<PeerGroup>> Create(std::span<const int32_t> devices);

  int32_t count() const { return static_cast<int32_t>(devices_.size()); }
  const std::vector<int32_t>& devices() const { return devices_; }

  // Memory of `rank` that kernels on all GPUs write and read. Every rank registers its buffers
  // before WaitForAll(), and may call peers() after it. [the rank's thread]
  struct Buffers {
    __nv_bfloat16* partials = nullptr;
    __nv_bfloat16* residual = nullptr;
    __nv_bfloat16* normed = nullptr;
    float* logits = nullptr;
    int32_t* last_tokens = nullptr;
  };
  void RegisterBuffers(int32_t rank, const Buffers& buffers);
  const Peers& peers(int32_t rank);

  // As PeerBarrier::WaitForAll(). [the ranks' threads]
  Result<int64_t> WaitForAll(int64_t value = 0) { return barrier_.WaitForAll(value); }
  // Called when a rank has failed: its peers stop waiting, on the device and on the host, now and
  // in the future. [any thread]
  void Stop();
  // An error if the results of the kernels so far are invalid. [any thread]
  Status status() const;

  int64_t memory_bytes() const;  // sum over all GPUs

 private:
  explicit PeerGroup(std::span<const int32_t> devices)
      : devices_(devices.begin(), devices.end()), barrier_(count()), peers_(devices.size()) {}
  Status Initialize();

  const std::vector<int32_t> devices_;
  PeerBarrier barrier_;
  PinnedMemory control_;
  std::vector<DeviceMemory> memory_;  // by rank: packet buffers, flags, epochs
  Peers template_ = {};               // the fields that are common to all ranks
  std::vector<Peers> peers_;
};

}  // namespace nereid::gpu
