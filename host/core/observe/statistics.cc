#include "host/core/observe/statistics.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "base/clock.h"

namespace nereid::core {
namespace {

using Json = nlohmann::ordered_json;

// Backends may report arbitrary timestamps. A negative duration counts as 0.
uint64_t Span(uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? to_ns - from_ns : 0;
}

void Add(CountAndNs* sum, const CountAndNs& other) {
  sum->count += other.count;
  sum->ns += other.ns;
}

void Count(CountAndNs* sum, uint64_t ns) {
  ++sum->count;
  sum->ns += ns;
}

void Add(BatchCounts* sum, const BatchCounts& other) {
  Add(&sum->compute_input, other.compute_input);
  Add(&sum->compute_infer, other.compute_infer);
  Add(&sum->compute_output, other.compute_output);
}

void Add(ResponseCounts* sum, const ResponseCounts& other) {
  Add(&sum->compute_infer, other.compute_infer);
  Add(&sum->compute_output, other.compute_output);
  Add(&sum->success, other.success);
  Add(&sum->fail, other.fail);
  Add(&sum->empty_response, other.empty_response);
  Add(&sum->cancel, other.cancel);
}

uint64_t NumReports(const ResponseCounts& counts) {
  return counts.success.count + counts.fail.count + counts.empty_response.count +
         counts.cancel.count;
}

Json ToJson(const CountAndNs& value) {
  return {{"count", value.count}, {"ns", value.ns}};
}

}  // namespace

const char* FailureReasonName(FailureReason reason) {
  switch (reason) {
    case FailureReason::kRejected:
      return "REJECTED";
    case FailureReason::kCanceled:
      return "CANCELED";
    case FailureReason::kBackend:
      return "BACKEND";
    case FailureReason::kOther:
      break;
  }
  return "OTHER";
}

void StatisticsShard::Cell::Add(uint64_t duration_ns) {
  count.fetch_add(1, std::memory_order_relaxed);
  ns.fetch_add(duration_ns, std::memory_order_relaxed);
}

CountAndNs StatisticsShard::Cell::Read() const {
  return {count.load(std::memory_order_relaxed), ns.load(std::memory_order_relaxed)};
}

void StatisticsShard::RecordSuccess(const RequestTimes& times, uint64_t batch_size) {
  last_inference_ms_.store(WallNowMs(), std::memory_order_relaxed);
  inference_count_.fetch_add(batch_size, std::memory_order_relaxed);
  success_.Add(Span(times.request_start_ns, times.request_end_ns));
  queue_.Add(Span(times.queue_start_ns, times.exec_start_ns));
  compute_input_.Add(Span(times.exec_start_ns, times.compute_start_ns));
  compute_infer_.Add(Span(times.compute_start_ns, times.compute_end_ns));
  compute_output_.Add(Span(times.compute_end_ns, times.exec_end_ns));
  if (latencies_ != nullptr) latencies_->RecordSuccess(times);
}

void StatisticsShard::RecordCacheHit(uint64_t request_start_ns, uint64_t lookup_start_ns,
                                     uint64_t lookup_end_ns) {
  last_inference_ms_.store(WallNowMs(), std::memory_order_relaxed);
  success_.Add(Span(request_start_ns, lookup_end_ns));
  queue_.Add(Span(request_start_ns, lookup_start_ns));  // as in Triton
  cache_hit_.Add(Span(lookup_start_ns, lookup_end_ns));
  if (latencies_ == nullptr) return;
  latencies_->RecordCacheHit(Span(request_start_ns, lookup_end_ns),
                             Span(lookup_start_ns, lookup_end_ns));
}

void StatisticsShard::RecordCacheMiss(uint64_t duration_ns) {
  cache_miss_.Add(duration_ns);
  if (latencies_ != nullptr) latencies_->RecordCacheMiss(duration_ns);
}

void StatisticsShard::RecordFailure(FailureReason reason, uint64_t duration_ns) {
  fail_.Add(duration_ns);
  failures_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

void StatisticsShard::ChangeReason(FailureReason from, FailureReason to) {
  failures_[static_cast<size_t>(to)].fetch_add(1, std::memory_order_relaxed);
  failures_[static_cast<size_t>(from)].fetch_sub(1, std::memory_order_relaxed);
}

void StatisticsShard::RecordExecution(uint64_t batch_size, const RequestTimes& times) {
  last_inference_ms_.store(WallNowMs(), std::memory_order_relaxed);
  execution_count_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t input_ns = Span(times.exec_start_ns, times.compute_start_ns);
  const uint64_t infer_ns = Span(times.compute_start_ns, times.compute_end_ns);
  const uint64_t output_ns = Span(times.compute_end_ns, times.exec_end_ns);
  if (batch_size < kNumDirectBatches) {
    BatchCells& cells = batches_[batch_size];
    cells.compute_input.Add(input_ns);
    cells.compute_infer.Add(infer_ns);
    cells.compute_output.Add(output_ns);
    return;
  }
  std::lock_guard lock(rare_mutex_);
  const bool is_new = !large_batches_.contains(batch_size);
  const bool is_crowded = large_batches_.size() >= kMaxLargeBatchSizes;
  BatchCounts& counts =
      large_batches_[is_new && is_crowded ? std::bit_floor(batch_size) : batch_size];
  Count(&counts.compute_input, input_ns);
  Count(&counts.compute_infer, infer_ns);
  Count(&counts.compute_output, output_ns);
}

void StatisticsShard::RecordResponse(const ResponseTimes& times) {
  const uint64_t total_ns = Span(times.response_start_ns, times.response_end_ns);
  std::lock_guard lock(rare_mutex_);
  const uint64_t index = std::min(times.index, kLastResponseIndex);
  if (index >= responses_.size()) responses_.resize(index + 1);
  ResponseCounts& counts = responses_[index];
  // As in Triton, a cancelled response counts no compute time.
  if (times.outcome == ResponseTimes::Outcome::kCancel) return Count(&counts.cancel, total_ns);
  if (times.compute_output_start_ns != 0) {
    Count(&counts.compute_infer, Span(times.response_start_ns, times.compute_output_start_ns));
    Count(&counts.compute_output, Span(times.compute_output_start_ns, times.response_end_ns));
  } else {
    Count(&counts.compute_infer, total_ns);
  }
  switch (times.outcome) {
    case ResponseTimes::Outcome::kSuccess:
      return Count(&counts.success, total_ns);
    case ResponseTimes::Outcome::kFail:
      return Count(&counts.fail, total_ns);
    case ResponseTimes::Outcome::kEmpty:
      return Count(&counts.empty_response, total_ns);
    case ResponseTimes::Outcome::kCancel:
      break;  // returned above
  }
}

void StatisticsShard::AddTo(StatisticsSnapshot* sum) const {
  sum->last_inference_ms =
      std::max(sum->last_inference_ms, last_inference_ms_.load(std::memory_order_relaxed));
  sum->inference_count += inference_count_.load(std::memory_order_relaxed);
  sum->execution_count += execution_count_.load(std::memory_order_relaxed);
  Add(&sum->success, success_.Read());
  Add(&sum->fail, fail_.Read());
  Add(&sum->queue, queue_.Read());
  Add(&sum->compute_input, compute_input_.Read());
  Add(&sum->compute_infer, compute_infer_.Read());
  Add(&sum->compute_output, compute_output_.Read());
  Add(&sum->cache_hit, cache_hit_.Read());
  Add(&sum->cache_miss, cache_miss_.Read());
  for (size_t i = 0; i < kNumFailureReasons; ++i) {
    sum->failures[i] += failures_[i].load(std::memory_order_relaxed);
  }
  for (size_t size = 0; size < kNumDirectBatches; ++size) {
    const BatchCells& cells = batches_[size];
    const BatchCounts counts{cells.compute_input.Read(), cells.compute_infer.Read(),
                             cells.compute_output.Read()};
    if (counts.compute_input.count > 0) Add(&sum->batches[size], counts);
  }
  std::lock_guard lock(rare_mutex_);
  for (const auto& [size, counts] : large_batches_) Add(&sum->batches[size], counts);
  if (sum->responses.size() < responses_.size()) sum->responses.resize(responses_.size());
  for (size_t i = 0; i < responses_.size(); ++i) Add(&sum->responses[i], responses_[i]);
}

ModelStatistics::ModelStatistics() {
  shards_.push_back(std::make_unique<StatisticsShard>());
}

StatisticsShard& ModelStatistics::AddShard() {
  std::lock_guard lock(mutex_);
  StatisticsShard& shard = *shards_.emplace_back(std::make_unique<StatisticsShard>());
  shard.set_latencies(latencies_.get());
  return shard;
}

void ModelStatistics::SetLatencyMetrics(std::unique_ptr<LatencyMetrics> latencies) {
  std::lock_guard lock(mutex_);
  latencies_ = std::move(latencies);
  for (const auto& shard : shards_) shard->set_latencies(latencies_.get());
}

StatisticsSnapshot ModelStatistics::Sum() const {
  StatisticsSnapshot sum;
  std::lock_guard lock(mutex_);
  for (const auto& shard : shards_) shard->AddTo(&sum);
  return sum;
}

void MemoryUsage::Report(const void* reporter, std::vector<Entry> entries) {
  std::lock_guard lock(mutex_);
  reports_[reporter] = std::move(entries);
}

std::vector<MemoryUsage::Entry> MemoryUsage::Sum() const {
  std::map<std::pair<std::string, int64_t>, uint64_t> sums;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [reporter, entries] : reports_) {
      for (const Entry& entry : entries) sums[{entry.type, entry.id}] += entry.byte_size;
    }
  }
  std::vector<Entry> result;
  for (const auto& [place, byte_size] : sums) {
    result.push_back({place.first, place.second, byte_size});
  }
  return result;
}

std::string StatisticsJson(const std::string& model, int64_t version,
                           const StatisticsSnapshot& snapshot,
                           const std::vector<MemoryUsage::Entry>& memory_usage) {
  Json memory = Json::array();
  for (const auto& entry : memory_usage) {
    memory.push_back({{"type", entry.type}, {"id", entry.id}, {"byte_size", entry.byte_size}});
  }
  Json responses = Json::object();
  for (size_t i = 0; i < snapshot.responses.size(); ++i) {
    const ResponseCounts& counts = snapshot.responses[i];
    if (NumReports(counts) == 0) continue;
    responses[std::to_string(i)] = {{"compute_infer", ToJson(counts.compute_infer)},
                                    {"compute_output", ToJson(counts.compute_output)},
                                    {"success", ToJson(counts.success)},
                                    {"fail", ToJson(counts.fail)},
                                    {"empty_response", ToJson(counts.empty_response)},
                                    {"cancel", ToJson(counts.cancel)}};
  }
  Json batches = Json::array();
  for (const auto& [size, counts] : snapshot.batches) {
    batches.push_back({{"batch_size", size},
                       {"compute_input", ToJson(counts.compute_input)},
                       {"compute_infer", ToJson(counts.compute_infer)},
                       {"compute_output", ToJson(counts.compute_output)}});
  }
  const Json json = {{"name", model},
                     {"version", std::to_string(version)},
                     {"last_inference", snapshot.last_inference_ms},
                     {"inference_count", snapshot.inference_count},
                     {"execution_count", snapshot.execution_count},
                     {"inference_stats",
                      {{"success", ToJson(snapshot.success)},
                       {"fail", ToJson(snapshot.fail)},
                       {"queue", ToJson(snapshot.queue)},
                       {"compute_input", ToJson(snapshot.compute_input)},
                       {"compute_infer", ToJson(snapshot.compute_infer)},
                       {"compute_output", ToJson(snapshot.compute_output)},
                       {"cache_hit", ToJson(snapshot.cache_hit)},
                       {"cache_miss", ToJson(snapshot.cache_miss)}}},
                     {"response_stats", std::move(responses)},
                     {"batch_stats", std::move(batches)},
                     {"memory_usage", std::move(memory)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace nereid::core
