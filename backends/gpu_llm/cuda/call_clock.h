// Times calls on a stream without waiting for them: what one took is known once the device is
// through with it. [engine thread]
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <optional>
#include <utility>

#include "backends/gpu_llm/cuda/stream.h"

namespace nereid::gpu {

// `Tag` says whose time it is.
template <typename Tag>
class CallClock {
 public:
  struct Ended {
    Tag tag;
    double seconds;
  };

  // What is launched between the two is one call. Not while the stream is recorded.
  Status Start(cudaStream_t stream) {
    if (idle_.empty()) {
      NEREID_ASSIGN_OR_RETURN(Event start, MakeEvent(cudaEventDefault));
      NEREID_ASSIGN_OR_RETURN(Event end, MakeEvent(cudaEventDefault));
      idle_.push_back({std::move(start), std::move(end)});
    }
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(idle_.back().start.get(), stream));
    return {};
  }
  Status Stop(Tag tag, cudaStream_t stream) {
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(idle_.back().end.get(), stream));
    under_way_.push_back({std::move(tag), std::move(idle_.back())});
    idle_.pop_back();
    return {};
  }

  // The oldest call, if it has ended; it is then forgotten.
  Result<std::optional<Ended>> Take() {
    if (under_way_.empty()) return std::optional<Ended>();
    Call& oldest = under_way_.front();
    const cudaError_t state = cudaEventQuery(oldest.pair.end.get());
    if (state == cudaErrorNotReady) {
      (void)cudaGetLastError();  // is no fault
      return std::optional<Ended>();
    }
    NEREID_RETURN_IF_CUDA_ERROR(state);
    float ms = 0.0f;
    NEREID_RETURN_IF_CUDA_ERROR(
        cudaEventElapsedTime(&ms, oldest.pair.start.get(), oldest.pair.end.get()));
    std::optional<Ended> ended = Ended{std::move(oldest.tag), 1e-3 * ms};
    idle_.push_back(std::move(oldest.pair));
    under_way_.pop_front();
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
  std::deque<Call> under_way_;
  std::deque<Pair> idle_;
};

}  // namespace nereid::gpu
