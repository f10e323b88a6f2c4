// Measures the duration of calls on a stream with events and without blocking: a duration is
// available when the device has completed the call. [engine thread]
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <optional>
#include <utility>

#include "backends/gpu_llm/cuda/stream.h"

namespace nereid::gpu {

// `Tag` identifies a measured call.
template <typename Tag>
class EventTimer {
 public:
  struct Timing {
    Tag tag;
    double seconds;
  };

  // The work launched between Start() and Stop() is one call. Not allowed during graph capture.
  Status Start(cudaStream_t stream) {
    if (free_pairs_.empty()) {
      NEREID_ASSIGN_OR_RETURN(Event start, MakeEvent(cudaEventDefault));
      NEREID_ASSIGN_OR_RETURN(Event end, MakeEvent(cudaEventDefault));
      free_pairs_.push_back({std::move(start), std::move(end)});
    }
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(free_pairs_.back().start.get(), stream));
    return {};
  }
  Status Stop(Tag tag, cudaStream_t stream) {
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(free_pairs_.back().end.get(), stream));
    pending_.push_back({std::move(tag), std::move(free_pairs_.back())});
    free_pairs_.pop_back();
    return {};
  }

  // Returns and removes the oldest call if it has completed.
  Result<std::optional<Timing>> TryTake() {
    if (pending_.empty()) return std::optional<Timing>();
    Call& oldest = pending_.front();
    const cudaError_t state = cudaEventQuery(oldest.pair.end.get());
    if (state == cudaErrorNotReady) {
      (void)cudaGetLastError();  // clears cudaErrorNotReady
      return std::optional<Timing>();
    }
    NEREID_RETURN_IF_CUDA_ERROR(state);
    float ms = 0.0f;
    NEREID_RETURN_IF_CUDA_ERROR(
        cudaEventElapsedTime(&ms, oldest.pair.start.get(), oldest.pair.end.get()));
    std::optional<Timing> ended = Timing{std::move(oldest.tag), 1e-3 * ms};
    free_pairs_.push_back(std::move(oldest.pair));
    pending_.pop_front();
    return ended;
  }

 private:
  struct Pair {
    Event start, end;
  };
  struct Call {
    Tag tag;
    Pair pair;
  };
  std::deque<Call> pending_;
  std::deque<Pair> free_pairs_;
};

}  // namespace nereid::gpu
