// Timestamps and stop strings of one batch item.
#include "backends/llm_core/adapter/item_output_sink.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "backends/llm_core/adapter/active_request.h"

namespace nereid::llm {

int64_t SteadyNowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

ItemOutputSink::ItemOutputSink(std::shared_ptr<ActiveRequest> active_request, size_t item,
                               std::shared_ptr<const StopStrings> stop_strings,
                               StopReasons stop_reasons, std::unique_ptr<AdapterUse> adapter_use,
                               int64_t arrival_ns)
    : active_request_(std::move(active_request)),
      item_(item),
      stop_strings_(std::move(stop_strings)),
      stop_reasons_(std::move(stop_reasons)),
      adapter_use_(std::move(adapter_use)),
      arrival_ns_(arrival_ns) {}

bool ItemOutputSink::IsCancelled() const {
  return active_request_->IsCancelled();
}

void ItemOutputSink::OnScheduled() {
  if (first_scheduled_ns_ == 0) first_scheduled_ns_ = SteadyNowNs();
  if (adapter_use_ != nullptr) adapter_use_->OnScheduled();
}

llm::StopResult ItemOutputSink::OnToken(int32_t sequence_index, std::span<const int32_t> ids) {
  if (stop_strings_ == nullptr) return OutputSink::OnToken(sequence_index, ids);
  const auto index = static_cast<size_t>(sequence_index);
  while (stop_searches_.size() <= index)
    stop_searches_.emplace_back().detector.emplace(stop_strings_);
  stop_searches_[index].result = stop_searches_[index].detector->OnToken(ids);
  return stop_searches_[index].result;
}

void ItemOutputSink::OnOutput(const llm::SequenceOutput& output) {
  const auto index = static_cast<size_t>(output.sequence_index);
  if (timings_.size() <= index) {
    timings_.resize(index + 1);
    token_gaps_.resize(index + 1);
  }
  SequenceTiming& timing = timings_[index];
  timing.arrival_ns = arrival_ns_;
  timing.first_scheduled_ns = first_scheduled_ns_;
  if (output.ids.size() > output.first_new) {
    const int64_t now_ns = SteadyNowNs();
    const size_t num_new = output.ids.size() - output.first_new;
    if (timing.last_token_ns != 0) {
      const double gap = static_cast<double>(now_ns - timing.last_token_ns) * 1e-9;
      token_gaps_[index].insert(token_gaps_[index].end(), num_new,
                                static_cast<float>(gap / static_cast<double>(num_new)));
    }
    timing.last_token_ns = now_ns;
    if (timing.first_token_ns == 0) timing.first_token_ns = now_ns;
  }
  if (output.finish != llm::FinishReason::kNone) timing.token_gaps = std::move(token_gaps_[index]);
  active_request_->Post(item_, output, timing, StopReason(output), ReplacementIds(output));
}

void ItemOutputSink::OnError(const Status& status) {
  active_request_->PostError(item_, status);
}

std::string ItemOutputSink::StopReason(const llm::SequenceOutput& output) const {
  if (output.finish == llm::FinishReason::kLength) return stop_reasons_.cut_length;
  if (output.finish != llm::FinishReason::kStop) return "";
  const llm::TokenIds& ids = stop_reasons_.stop_token_ids;
  if (output.end_id >= 0) {
    const bool is_of_request = std::find(ids.begin(), ids.end(), output.end_id) != ids.end();
    return is_of_request ? std::to_string(output.end_id) : "";
  }
  const auto index = static_cast<size_t>(output.sequence_index);
  if (index < stop_searches_.size() &&
      stop_searches_[index].result.finish == llm::FinishReason::kStop) {
    return stop_searches_[index].detector->found();
  }
  const auto word = static_cast<size_t>(output.stop_word);
  return word < stop_reasons_.id_word_texts.size() ? stop_reasons_.id_word_texts[word] : "";
}

llm::TokenIds ItemOutputSink::ReplacementIds(const llm::SequenceOutput& output) const {
  const auto index = static_cast<size_t>(output.sequence_index);
  if (index >= stop_searches_.size() || output.finish != llm::FinishReason::kStop) return {};
  const StopSearch& search = stop_searches_[index];
  const auto num_visible = static_cast<size_t>(search.result.num_visible);
  const bool is_stop_string = search.result.finish == llm::FinishReason::kStop;
  if (!is_stop_string || output.ids.size() != num_visible)
    return {};  // another rule ended the sequence
  return search.detector->ReplacementIds(output.ids);
}

}  // namespace nereid::llm
