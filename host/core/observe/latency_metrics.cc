#include "host/core/observe/latency_metrics.h"

#include <prometheus/client_metric.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_type.h>
#include <prometheus/summary.h>

#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "host/core/observe/statistics.h"

namespace nereid::core {
namespace {

enum Kind { kRequest, kQueue, kInput, kInfer, kOutput, kCacheHit, kCacheMiss, kNumKinds };

struct SummaryFamily {
  const char* name;
  const char* help;
};
constexpr std::array<SummaryFamily, kNumKinds> kSummaries = {{
    {"nv_inference_request_summary_us",
     "Summary of inference request duration in microseconds (includes cached requests)"},
    {"nv_inference_queue_summary_us",
     "Summary of inference queuing duration in microseconds (includes cached requests)"},
    {"nv_inference_compute_input_summary_us",
     "Summary of compute input duration in microseconds (does not include cached requests)"},
    {"nv_inference_compute_infer_summary_us",
     "Summary of compute inference duration in microseconds (does not include cached requests)"},
    {"nv_inference_compute_output_summary_us",
     "Summary of inference compute output duration in microseconds (does not include cached "
     "requests)"},
    {"nv_cache_hit_summary_per_model", "Summary of cache hit duration per model, in microseconds"},
    {"nv_cache_miss_summary_per_model",
     "Summary of cache miss duration per model, in microseconds"},
}};

// Parses a number from 0 to 1.
std::optional<double> ParseShare(std::string_view text) {
  double share = 0;
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  const bool whole = error == std::errc() && last == text.data() + text.size();
  if (!whole || !(share >= 0 && share <= 1)) return std::nullopt;
  return share;
}

}  // namespace

Result<LatencyOptions::Quantiles> ParseQuantiles(const std::string& text) {
  LatencyOptions::Quantiles quantiles;
  std::string_view rest = text;
  while (true) {
    const std::string_view pair = rest.substr(0, rest.find(','));
    const size_t colon = std::min(pair.find(':'), pair.size());
    const auto quantile = ParseShare(pair.substr(0, colon));
    const auto error = ParseShare(pair.substr(std::min(colon + 1, pair.size())));
    if (!quantile || !error) {
      return InvalidArgError(
          "metrics config 'summary_quantiles': expected quantile:error pairs "
          "between 0 and 1, got '",
          pair, "'");
    }
    quantiles.emplace_back(*quantile, *error);
    if (pair.size() == rest.size()) return quantiles;
    rest.remove_prefix(pair.size() + 1);
  }
}

struct LatencyMetrics::Recorders {
  std::array<std::unique_ptr<prometheus::Summary>, kNumKinds> summaries;  // null: disabled
  std::unique_ptr<prometheus::Histogram> first_response;                  // null: disabled

  void Observe(Kind kind, uint64_t from_ns, uint64_t to_ns) {
    if (summaries[kind] == nullptr) return;
    const uint64_t span_ns = to_ns > from_ns ? to_ns - from_ns : 0;
    summaries[kind]->Observe(static_cast<double>(span_ns / 1000));
  }
};

LatencyMetrics::LatencyMetrics(const LatencyOptions& options, const std::vector<double>& buckets_ms,
                               bool cached)
    : recorders_(std::make_unique<Recorders>()) {
  if (options.histograms && !buckets_ms.empty()) {
    recorders_->first_response = std::make_unique<prometheus::Histogram>(buckets_ms);
  }
  if (!options.summaries) return;
  prometheus::Summary::Quantiles quantiles;
  for (const auto& [quantile, error] : options.quantiles) quantiles.emplace_back(quantile, error);
  for (size_t kind = 0; kind < (cached ? kNumKinds : kCacheHit); ++kind) {
    recorders_->summaries[kind] = std::make_unique<prometheus::Summary>(quantiles);
  }
}

LatencyMetrics::~LatencyMetrics() = default;

void LatencyMetrics::RecordSuccess(const RequestTimes& times) {
  recorders_->Observe(kRequest, times.request_start_ns, times.request_end_ns);
  recorders_->Observe(kQueue, times.queue_start_ns, times.exec_start_ns);
  recorders_->Observe(kInput, times.exec_start_ns, times.compute_start_ns);
  recorders_->Observe(kInfer, times.compute_start_ns, times.compute_end_ns);
  recorders_->Observe(kOutput, times.compute_end_ns, times.exec_end_ns);
}

void LatencyMetrics::RecordCacheHit(uint64_t request_ns, uint64_t lookup_ns) {
  recorders_->Observe(kRequest, 0, request_ns);
  recorders_->Observe(kCacheHit, 0, lookup_ns);
}

void LatencyMetrics::RecordCacheMiss(uint64_t duration_ns) {
  recorders_->Observe(kCacheMiss, 0, duration_ns);
}

void LatencyMetrics::RecordFirstResponse(uint64_t duration_ns) {
  if (has_first_response())
    recorders_->first_response->Observe(static_cast<double>(duration_ns) * 1e-6);
}

bool LatencyMetrics::has_first_response() const {
  return recorders_->first_response != nullptr;
}

void LatencyMetrics::Visit(const Visitor& visitor) const {
  if (has_first_response()) {
    visitor(kFirstResponse, "Duration from request to first response in milliseconds",
            prometheus::MetricType::Histogram, recorders_->first_response->Collect());
  }
  for (size_t kind = 0; kind < kNumKinds; ++kind) {
    if (recorders_->summaries[kind] == nullptr) continue;
    visitor(kSummaries[kind].name, kSummaries[kind].help, prometheus::MetricType::Summary,
            recorders_->summaries[kind]->Collect());
  }
}

}  // namespace nereid::core
