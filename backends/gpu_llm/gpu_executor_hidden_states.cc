// GpuExecutor: the hidden states of layers that a drafter reads. [engine thread]
#include "backends/gpu_llm/bf16.h"
#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/gpu_executor.h"

namespace nereid::gpu {

Status GpuExecutor::CaptureHiddenStates(std::span<const int32_t> layers,
                                        llm::HiddenStatePlace place) {
  for (const int32_t layer : layers) {
    if (layer >= 0 && layer <= model_.spec.num_layers()) continue;
    return InvalidArgError("hidden states of layer ", layer, ": the model has layers 0 to ",
                           model_.spec.num_layers() - 1, ", and ", model_.spec.num_layers(),
                           " means its output");
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  hidden_state_place_ = place;
  NEREID_RETURN_IF_ERROR(decoder_->Capture({layers.begin(), layers.end()}));
  if (options_.group == nullptr || options_.rank > 0 || place == llm::HiddenStatePlace::kDevice)
    return {};
  // Now, because an allocation during a step may wait for all GPUs, one of which waits for this
  // one.
  const int64_t size_bytes = 2 * decoder_->captured()->row_size() * limits_.max_num_tokens;
  for (InFlightStep& in_flight : in_flight_) {
    NEREID_ASSIGN_OR_RETURN(in_flight.hidden,
                            PinnedMemory::Allocate(static_cast<size_t>(size_bytes)));
  }
  return {};
}

Status GpuExecutor::ReturnHiddenStates(const llm::StepBatch& batch, InFlightStep& in_flight) {
  if (options_.rank > 0) return {};
  if (decoder_->captured() == nullptr)
    return InternalError("a step returns hidden states, but none are kept");
  if (hidden_state_place_ == llm::HiddenStatePlace::kHost)
    return CopyHiddenStates(batch, in_flight);
  in_flight.result.keeps_hidden_states = true;
  return {};
}

Status GpuExecutor::CopyHiddenStates(const llm::StepBatch& batch, InFlightStep& in_flight) {
  const int64_t row_bytes = decoder_->captured()->row_size() * 2;
  int64_t num_rows = 0;
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    if (!batch.entries[i].returns_hidden_states) continue;
    in_flight.hidden_rows.push_back({static_cast<int32_t>(i), batch.entries[i].num_tokens});
    num_rows += batch.entries[i].num_tokens;
  }
  const auto size_bytes = static_cast<size_t>(num_rows * row_bytes);
  if (in_flight.hidden.size_bytes() < size_bytes) {
    NEREID_ASSIGN_OR_RETURN(in_flight.hidden, PinnedMemory::Allocate(size_bytes));
  }
  const auto* const from = reinterpret_cast<const char*>(decoder_->captured()->rows());
  char* to = in_flight.hidden.as<char>();
  for (size_t i = 0; i < in_flight.hidden_rows.size();) {
    // One copy takes the rows of all entries that follow each other without a gap.
    const int32_t first = batch.entries[in_flight.hidden_rows[i].first].first_token;
    int32_t end = first;
    for (; i < in_flight.hidden_rows.size(); ++i) {
      const llm::BatchEntry& entry = batch.entries[in_flight.hidden_rows[i].first];
      if (entry.first_token != end) break;
      end += entry.num_tokens;
    }
    const int64_t count_bytes = (end - first) * row_bytes;
    NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to, from + first * row_bytes, count_bytes,
                                                cudaMemcpyDeviceToHost, stream_.get()));
    to += count_bytes;
  }
  return {};
}

void GpuExecutor::TakeHiddenStates(const InFlightStep& in_flight, llm::StepResult& result) const {
  if (in_flight.hidden_rows.empty()) return;
  result.hidden_states.resize(in_flight.rows.size());
  const auto* from = in_flight.hidden.as<uint16_t>();
  for (const auto& [sequence, num_rows] : in_flight.hidden_rows) {
    std::vector<float>& to = result.hidden_states[sequence];
    const int64_t count = num_rows * decoder_->captured()->row_size();
    to.resize(static_cast<size_t>(count));
    FromBf16(std::span(from, to.size()), to.data());
    from += count;
  }
}

}  // namespace nereid::gpu
