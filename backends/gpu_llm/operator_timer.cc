// OperatorTimer, and the device's roofline. [engine thread]
#include "backends/gpu_llm/operator_timer.h"

#include <algorithm>

#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernels/device/delay.h"

namespace nereid::gpu {
namespace {

// Longer than the host takes to launch an operator and its event.
constexpr int64_t kDelayPerOperatorNs = 12'000;
constexpr int64_t kMaxDelayNs = 30'000'000;

// Measured rates of large copies and bf16 matrix products, relative to the nominal rates: 4.65 TB/s
// and 790 TFLOP/s on an H200.
constexpr double kOfBandwidth = 0.945;
constexpr double kOperationsPerProcessor = 790e12 / 132;

Result<DeviceRoofline> ReadRoofline(int device) {
  NEREID_ASSIGN_OR_RETURN(const int clock_khz, DeviceAttribute(cudaDevAttrMemoryClockRate, device));
  NEREID_ASSIGN_OR_RETURN(const int bus_bits,
                          DeviceAttribute(cudaDevAttrGlobalMemoryBusWidth, device));
  NEREID_ASSIGN_OR_RETURN(const int processors,
                          DeviceAttribute(cudaDevAttrMultiProcessorCount, device));
  return DeviceRoofline{2e3 * clock_khz * bus_bits / 8 * kOfBandwidth,
                        processors * kOperationsPerProcessor};
}

}  // namespace

Result<std::unique_ptr<OperatorTimer>> OperatorTimer::Create(
    int device, int32_t num_steps, std::function<void(const std::string&)> on_table) {
  std::unique_ptr<OperatorTimer> timer(new OperatorTimer());
  NEREID_ASSIGN_OR_RETURN(timer->roofline_, ReadRoofline(device));
  timer->num_steps_ = num_steps;
  timer->on_table_ = std::move(on_table);
  return timer;
}

void OperatorTimer::BeginStep(bool is_decode, const llm::StepBatch& batch, cudaStream_t stream) {
  is_decode_ = is_decode;
  num_tokens_ = static_cast<int32_t>(batch.token_ids.size());
  chunks_.clear();
  for (const llm::BatchEntry& sequence : batch.entries)
    chunks_.push_back({sequence.num_tokens, sequence.num_cached,
                       sequence.num_tokens == 1 + sequence.num_draft_tokens});
  const auto num_operators = static_cast<int64_t>(timed_.size());
  timed_.clear();
  num_events_ = 0;
  status_ = {};
  DelayStream(std::min(num_operators * kDelayPerOperatorNs, kMaxDelayNs), stream);
  // The time of an operator that does nothing, which every measured time includes.
  Mark("(empty)", {}, stream);
  DelayStream(0, stream);
}

void OperatorTimer::Record(cudaStream_t stream) {
  if (num_events_ == events_.size()) {
    Result<Event> event = MakeEvent(cudaEventDefault);
    if (!event.ok()) {
      status_ = std::move(event).status();
      return;
    }
    events_.push_back(std::move(*event));
  }
  const cudaError_t error = cudaEventRecord(events_[num_events_++].get(), stream);
  if (error != cudaSuccess) status_ = CudaStatus(error, "cudaEventRecord");
}

void OperatorTimer::Mark(const char* name, const OperatorWork& work, cudaStream_t stream) {
  timed_.push_back({name, work});
  Record(stream);
}

Status OperatorTimer::EndStep(cudaStream_t stream) {
  Record(stream);
  return status_;
}

Status OperatorTimer::Collect() {
  profile_.AddStep(is_decode_, num_tokens_);
  for (size_t i = 0; i < timed_.size(); ++i) {
    float ms = 0.0f;
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&ms, events_[i].get(), events_[i + 1].get()));
    profile_.Add(timed_[i].name, std::max(1e-9, 1e-3 * ms), timed_[i].work);
  }
  if (profile_.num_steps() < num_steps_) return {};
  on_table_(profile_.Table(roofline_));
  profile_ = {};
  return {};
}

OperatorTimer::AttentionWork OperatorTimer::Attention(bool of_decoding, int32_t window) const {
  AttentionWork work;
  for (const SequenceChunk& chunk : chunks_) {
    if (chunk.is_decoding != of_decoding) continue;
    const double length = chunk.num_cached + chunk.num_tokens;
    if (window == 0 || length <= window) {
      work.tokens_read += length;
      work.pairs += chunk.num_tokens * (chunk.num_cached + (chunk.num_tokens + 1) / 2.0);
    } else {  // most of its tokens see a whole window
      work.tokens_read += std::min<double>(length, window + chunk.num_tokens);
      work.pairs += static_cast<double>(chunk.num_tokens) * window;
    }
  }
  return work;
}

}  // namespace nereid::gpu
