// Families, labels and where their values come from.
#include "llm_core/adapter/llm_metrics.h"

#include <algorithm>
#include <iterator>

namespace nereid::llm_adapter {
namespace {

using llm::EngineStats;

double NowMicros(const EngineStats&) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

struct Category {
  const char* label;
  double (*value)(const EngineStats&);
};

struct GaugeFamily {
  const char* name;
  const char* description;
  const char* key;
  std::vector<Category> categories;
};

const std::vector<GaugeFamily>& GaugeFamilies() {
  static const std::vector<GaugeFamily> families = {
      {"nv_trt_llm_request_metrics",
       "LLM requests by state",
       "request_type",
       {{"active", [](const EngineStats& s) { return double(s.counts.num_running); }},
        {"max", [](const EngineStats& s) { return double(s.max_num_sequences); }},
        {"scheduled",
         [](const EngineStats& s) {
           return double(s.counts.num_prefill_sequences + s.counts.num_decode_sequences);
         }},
        {"context", [](const EngineStats& s) { return double(s.counts.num_prefill_sequences); }},
        {"waiting", [](const EngineStats& s) { return double(s.counts.num_waiting); }}}},
      {"nv_trt_llm_runtime_memory_metrics",
       "Memory of the LLM runtime in bytes",
       "memory_type",
       {{"cpu", [](const EngineStats& s) { return double(s.memory.cpu_bytes); }},
        {"gpu", [](const EngineStats& s) { return double(s.memory.gpu_bytes); }},
        {"pinned", [](const EngineStats& s) { return double(s.memory.pinned_bytes); }}}},
      {"nv_trt_llm_kv_cache_block_metrics",
       "Blocks of the KV cache",
       "kv_cache_block_type",
       {{"max", [](const EngineStats& s) { return double(s.num_blocks); }},
        {"free", [](const EngineStats& s) { return double(s.num_blocks - s.num_used_blocks); }},
        {"used", [](const EngineStats& s) { return double(s.num_used_blocks); }},
        {"tokens_per", [](const EngineStats& s) { return double(s.block_size); }},
        {"reused", [](const EngineStats& s) { return double(s.counts.num_reused_blocks); }},
        {"fraction",
         [](const EngineStats& s) {
           return double(s.num_used_blocks) / std::max(1, s.num_blocks);
         }}}},
      {"nv_trt_llm_inflight_batcher_metrics",
       "In-flight batching",
       "inflight_batcher_specific_metric",
       {{"total_context_tokens",
         [](const EngineStats& s) { return double(s.counts.num_prefill_tokens); }},
        {"generation_requests",
         [](const EngineStats& s) { return double(s.counts.num_decode_sequences); }},
        {"micro_batch_id", [](const EngineStats&) { return 0.0; }},
        {"paused_requests", [](const EngineStats& s) { return double(s.counts.num_paused); }}}},
      {"nv_trt_llm_general_metrics",
       "General LLM metrics",
       "general_type",
       {{"timestamp", NowMicros},
        {"iteration_counter", [](const EngineStats& s) { return double(s.num_steps); }}}},
      {"nereid_llm_engine",
       "Totals of the LLM engine since it was loaded",
       "total",
       {{"steps", [](const EngineStats& s) { return double(s.num_steps); }},
        {"recorded_steps", [](const EngineStats& s) { return double(s.num_recorded_steps); }},
        {"step_microseconds", [](const EngineStats& s) { return s.step_seconds * 1e6; }},
        {"output_tokens", [](const EngineStats& s) { return double(s.num_output_tokens); }},
        {"preemptions", [](const EngineStats& s) { return double(s.counts.num_preemptions); }}}},
  };
  return families;
}

}  // namespace

std::unique_ptr<LlmMetrics> LlmMetrics::Create(const std::string& model, int64_t version,
                                               int32_t period_ms) {
  std::unique_ptr<LlmMetrics> metrics(new LlmMetrics(period_ms));
  Status made = metrics->AddGauges(model, std::to_string(version));
  if (made.ok()) made = metrics->AddHistograms(model, std::to_string(version));
  if (made.ok()) return metrics;
  LogWarning(StrCat("model '", model, "': no LLM metrics: ", made.message()));
  return nullptr;
}

Status LlmMetrics::AddGauges(const std::string& model, const std::string& version) {
  for (const GaugeFamily& from : GaugeFamilies()) {
    NEREID_ASSIGN_OR_RETURN(
        MetricFamily family,
        MetricFamily::Create(TRITONSERVER_METRIC_KIND_GAUGE, from.name, from.description));
    for (const Category& category : from.categories) {
      NEREID_ASSIGN_OR_RETURN(
          Metric metric,
          family.New({{from.key, category.label}, {"model", model}, {"version", version}}));
      gauges_.push_back({std::move(metric), category.value});
    }
    families_.push_back(std::move(family));
  }
  return {};
}

Status LlmMetrics::AddHistograms(const std::string& model, const std::string& version) {
  constexpr double kBuckets[] = {10, 50, 100, 500, 1000};
  constexpr const char* kNames[][2] = {{"nv_llm_input_token_len", "total_input_tokens"},
                                       {"nv_llm_output_token_len", "total_output_tokens"}};
  for (const auto& [name, label] : kNames) {
    NEREID_ASSIGN_OR_RETURN(
        MetricFamily family,
        MetricFamily::Create(TRITONSERVER_METRIC_KIND_HISTOGRAM, name, "Tokens of a request"));
    NEREID_ASSIGN_OR_RETURN(
        Metric metric,
        family.NewHistogram(
            {{"response_metric_type", label}, {"model", model}, {"version", version}}, kBuckets));
    histograms_.push_back(std::move(metric));
    families_.push_back(std::move(family));
  }
  return {};
}

void LlmMetrics::Update(const llm::EngineStats& stats) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_idle = stats.counts.num_running == 0 && stats.counts.num_waiting == 0;
  if (now < next_ && !is_idle) return;
  next_ = now + period_;
  for (Gauge& gauge : gauges_) (void)gauge.metric.Set(gauge.value(stats));
}

void LlmMetrics::CountRequest(size_t num_input_tokens, int32_t num_output_tokens) {
  const std::lock_guard lock(histograms_mutex_);
  (void)histograms_[0].Observe(static_cast<double>(num_input_tokens));
  (void)histograms_[1].Observe(static_cast<double>(num_output_tokens));
}

}  // namespace nereid::llm_adapter
