// Times a kernel with consecutive launches in a CUDA graph, as in a recorded step.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "backends/gpu_llm/cuda/stream.h"

namespace nereid::bench {

inline void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("error: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

class GraphTimer {
 public:
  GraphTimer()
      : stream_(std::move(*gpu::MakeStream())),
        start_(std::move(*gpu::MakeEvent(cudaEventDefault))),
        end_(std::move(*gpu::MakeEvent(cudaEventDefault))) {}

  // The stream to launch on.
  cudaStream_t stream() const { return stream_.get(); }

  // Microseconds of one of `count` launches made by launch(i): the best of six runs.
  template <typename LaunchOne>
  double Measure(int count, const LaunchOne& launch) {
    Check(cudaDeviceSynchronize());
    Check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < count; ++i) launch(i);
    cudaGraph_t nodes = nullptr;
    Check(cudaStreamEndCapture(stream_.get(), &nodes));
    cudaGraphExec_t graph = nullptr;
    Check(cudaGraphInstantiate(&graph, nodes, 0));
    float best = 1e9f;
    for (int turn = 0; turn < 6; ++turn) {
      Check(cudaEventRecord(start_.get(), stream_.get()));
      Check(cudaGraphLaunch(graph, stream_.get()));
      Check(cudaEventRecord(end_.get(), stream_.get()));
      Check(cudaEventSynchronize(end_.get()));
      float ms = 0.0f;
      Check(cudaEventElapsedTime(&ms, start_.get(), end_.get()));
      best = std::min(best, ms);
    }
    Check(cudaGraphExecDestroy(graph));
    Check(cudaGraphDestroy(nodes));
    return 1e3 * best / count;
  }

 private:
  gpu::Stream stream_;
  gpu::Event start_, end_;
};

}  // namespace nereid::bench
