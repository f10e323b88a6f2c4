// The rate of copies from pinned host memory to the device.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/cuda/stream.h"

namespace nereid::bench {

// GB/s of copies of 256 MiB, the best of five; 0 after an error.
inline double HostToDeviceGigabytes() {
  constexpr size_t kBytes = size_t{256} << 20;
  auto from = gpu::PinnedMemory::Allocate(kBytes);
  auto to = gpu::DeviceMemory::Allocate(kBytes, "a copy");
  auto stream = gpu::MakeStream();
  if (!from.ok() || !to.ok() || !stream.ok()) return 0.0;
  double best = 0.0;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (int copy = 0; copy < 4; ++copy)
      (void)cudaMemcpyAsync(to->data(), from->as<void>(), kBytes, cudaMemcpyHostToDevice,
                            stream->get());
    if (cudaStreamSynchronize(stream->get()) != cudaSuccess) return 0.0;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, 4e-9 * static_cast<double>(kBytes) / seconds.count());
  }
  return best;
}

}  // namespace nereid::bench
