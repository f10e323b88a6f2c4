// See row_sink.h.
#include "backends/llm_core/adapter/row_sink.h"

#include <chrono>
#include <utility>

#include "backends/llm_core/adapter/generation.h"

namespace nereid::llm_adapter {

int64_t SteadyNowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

RowSink::RowSink(std::shared_ptr<Generation> generation, size_t row,
                 std::shared_ptr<const StopTexts> stop_texts, int64_t arrival_ns)
    : generation_(std::move(generation)),
      row_(row),
      stop_texts_(std::move(stop_texts)),
      arrival_ns_(arrival_ns) {}

bool RowSink::IsCancelled() const {
  return generation_->IsCancelled();
}

void RowSink::OnScheduled() {
  if (first_scheduled_ns_ == 0) first_scheduled_ns_ = SteadyNowNs();
}

llm::StopVerdict RowSink::OnToken(int32_t sequence_index, std::span<const int32_t> ids) {
  if (stop_texts_ == nullptr) return OutputSink::OnToken(sequence_index, ids);
  const auto index = static_cast<size_t>(sequence_index);
  while (watched_.size() <= index) watched_.emplace_back().text.emplace(stop_texts_);
  watched_[index].verdict = watched_[index].text->OnToken(ids);
  return watched_[index].verdict;
}

void RowSink::OnOutput(const llm::Output& output) {
  const auto index = static_cast<size_t>(output.sequence_index);
  if (timings_.size() <= index) timings_.resize(index + 1);
  Timing& timing = timings_[index];
  timing.arrival_ns = arrival_ns_;
  timing.first_scheduled_ns = first_scheduled_ns_;
  if (output.ids.size() > output.first_new) {
    timing.last_token_ns = SteadyNowNs();
    if (timing.first_token_ns == 0) timing.first_token_ns = timing.last_token_ns;
  }
  generation_->Post(row_, output, timing, Tail(output));
}

void RowSink::OnError(const Status& status) {
  generation_->PostError(row_, status);
}

llm::TokenIds RowSink::Tail(const llm::Output& output) const {
  const auto index = static_cast<size_t>(output.sequence_index);
  if (index >= watched_.size() || output.finish != llm::FinishReason::kStop) return {};
  const Watched& watched = watched_[index];
  const auto num_visible = static_cast<size_t>(watched.verdict.num_visible);
  const bool is_its = watched.verdict.finish == llm::FinishReason::kStop;
  if (!is_its || output.ids.size() != num_visible) return {};  // something else ended it
  return watched.text->Tail(output.ids);
}

}  // namespace nereid::llm_adapter
