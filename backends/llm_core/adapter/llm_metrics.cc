// Metric families, their labels and the sources of their values.
#include "backends/llm_core/adapter/llm_metrics.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "backends/llm_core/adapter/active_request.h"

namespace nereid::llm {
namespace {

using llm::EngineStats;

double NowMicros(const EngineStats&) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

// The beams of a request count as one, as upstream, and each sequence of num_return_sequences.
double NumActive(const EngineStats& stats) {
  return stats.counts.num_running - stats.counts.num_further_beams;
}

double NumGenerating(const EngineStats& stats) {
  return stats.counts.num_decode_sequences - stats.counts.num_decode_further_beams;
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

// Models whose gpt_model_type is V1 have this family in place of that of in-flight batching.
const GaugeFamily& V1Family() {
  static const GaugeFamily family = {
      "nv_trt_llm_v1_metrics",
      "Batching of models of the type V1",
      "v1_specific_metric",
      {{"total_context_tokens",
        [](const EngineStats& s) { return double(s.counts.num_prefill_tokens); }},
       {"total_generation_tokens",
        [](const EngineStats& s) { return double(s.counts.num_decode_sequences); }},
       {"empty_generation_slots",
        [](const EngineStats& s) { return double(s.max_num_sequences - s.counts.num_running); }}}};
  return family;
}

constexpr std::string_view kInflightFamily = "nv_trt_llm_inflight_batcher_metrics";

const std::vector<GaugeFamily>& GaugeFamilies() {
  static const std::vector<GaugeFamily> families = {
      {"nv_trt_llm_request_metrics",
       "LLM requests by state",
       "request_type",
       {{"active", NumActive},
        {"max", [](const EngineStats& s) { return double(s.max_num_sequences); }},
        {"scheduled",
         [](const EngineStats& s) { return s.counts.num_prefill_sequences + NumGenerating(s); }},
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
        {"generation_requests", NumGenerating},
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
        {"failed_recordings", [](const EngineStats& s) { return double(s.num_failed_recordings); }},
        {"step_microseconds", [](const EngineStats& s) { return s.step_seconds * 1e6; }},
        {"output_tokens", [](const EngineStats& s) { return double(s.num_output_tokens); }},
        {"preemptions", [](const EngineStats& s) { return double(s.counts.num_preemptions); }},
        {"kept_blocks", [](const EngineStats& s) { return double(s.counts.num_kept_blocks); }},
        {"fetched_blocks",
         [](const EngineStats& s) { return double(s.counts.num_fetched_blocks); }}}},
  };
  return families;
}

struct HistogramFamily {
  const char* name;
  const char* description;
  const char* response_metric_type;  // value of the label; null: no label
  std::span<const double> buckets;
};

constexpr double kTokenBuckets[] = {10, 50, 100, 500, 1000};
constexpr double kFirstTokenBuckets[] = {.001, .0025, .005, .01, .025, .05, .1, .25,
                                         .5,   1,     2.5,  5,   10,   25,  50};
constexpr double kNextTokenBuckets[] = {.001, .0025, .005, .0075, .01, .015, .02, .025,
                                        .05,  .075,  .1,   .15,   .25, .5,   1};

// CountRequest and CountSequence observe the histograms by their index in this table.
constexpr HistogramFamily kHistogramFamilies[] = {
    {"nv_llm_input_token_len", "Tokens of a request", "total_input_tokens", kTokenBuckets},
    {"nv_llm_output_token_len", "Tokens of a request", "total_output_tokens", kTokenBuckets},
    {"nereid_llm_time_to_first_token_seconds", "From a request's arrival to its first token",
     nullptr, kFirstTokenBuckets},
    {"nereid_llm_time_per_output_token_seconds",
     "From a sequence's first token to its last, for each token after the first", nullptr,
     kNextTokenBuckets},
    {"nereid_llm_inter_token_latency_seconds", "From one token of a sequence to its next", nullptr,
     kNextTokenBuckets},
    {"nereid_llm_queue_seconds", "From a request's arrival to its first step", nullptr,
     kFirstTokenBuckets}};

double Seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

}  // namespace

std::unique_ptr<LlmMetrics> LlmMetrics::Create(const std::string& model, int64_t version,
                                               int32_t period_ms, bool is_v1,
                                               const std::string& drafter) {
  std::unique_ptr<LlmMetrics> metrics(new LlmMetrics(period_ms));
  Status made = metrics->AddGauges(model, std::to_string(version), is_v1);
  if (made.ok()) made = metrics->AddTransferCounters(model, std::to_string(version));
  if (made.ok()) made = metrics->AddSpeculation(model, std::to_string(version), drafter);
  if (made.ok()) made = metrics->AddHistograms(model, std::to_string(version));
  if (made.ok()) return metrics;
  LogWarning(StrCat("model '", model, "': no LLM metrics: ", made.message()));
  return nullptr;
}

Status LlmMetrics::AddGauges(const std::string& model, const std::string& version, bool is_v1) {
  for (const GaugeFamily& each : GaugeFamilies()) {
    const GaugeFamily& from = is_v1 && each.name == kInflightFamily ? V1Family() : each;
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
  model_labels_ = {{"model", model}, {"version", version}};
  NEREID_ASSIGN_OR_RETURN(
      adapter_family_,
      MetricFamily::Create(TRITONSERVER_METRIC_KIND_GAUGE, "vllm:lora_requests_info",
                           "LoRA adapters of running and waiting requests; the value is the time "
                           "in seconds"));
  return {};
}

// Requests whose context was computed by another server, and the time to fetch it. There are none.
Status LlmMetrics::AddTransferCounters(const std::string& model, const std::string& version) {
  NEREID_ASSIGN_OR_RETURN(
      MetricFamily family,
      MetricFamily::Create(TRITONSERVER_METRIC_KIND_COUNTER,
                           "nv_trt_llm_disaggregated_serving_metrics",
                           "Requests whose context another server has computed"));
  for (const char* type : {"kv_cache_transfer_ms", "request_count"}) {
    NEREID_ASSIGN_OR_RETURN(
        Metric metric,
        family.New({{"disaggregated_serving_type", type}, {"model", model}, {"version", version}}));
    counters_.push_back(std::move(metric));
  }
  families_.push_back(std::move(family));
  return {};
}

// A series exists for the present label values only. Its value is the time, so that a reader of
// several servers' series finds the newest.
Status LlmMetrics::UpdateAdapters(int32_t max_adapters, AdapterUsage::Names names) {
  const bool is_unused = names == AdapterUsage::Names();
  if (!adapters_in_use_ && is_unused) return {};
  if (!adapters_in_use_ || names != adapter_names_) {
    MetricFamily::Labels labels = {{"max_lora", std::to_string(max_adapters)},
                                   {"running_lora_adapters", names.running},
                                   {"waiting_lora_adapters", names.waiting}};
    labels.insert(labels.end(), model_labels_.begin(), model_labels_.end());
    adapters_in_use_.reset();
    NEREID_ASSIGN_OR_RETURN(adapters_in_use_, adapter_family_->New(labels));
    adapter_names_ = std::move(names);
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return adapters_in_use_->Set(std::chrono::duration<double>(now).count());
}

// Adds the counts of the model's own drafter, and of the drafts that clients send.
Status LlmMetrics::AddSpeculation(const std::string& model, const std::string& version,
                                  const std::string& drafter) {
  using S = EngineStats;
  constexpr Category kOfDrafter[] = {
      {"draft_tokens", [](const S& s) { return double(s.speculation.num_drafted); }},
      {"accepted_tokens", [](const S& s) { return double(s.speculation.num_accepted); }},
      {"verified_drafts", [](const S& s) { return double(s.speculation.num_verified_chains); }},
      {"mean_accepted_length", [](const S& s) { return s.speculation.MeanAcceptedLength(); }}};
  constexpr Category kOfClients[] = {
      {"draft_tokens", [](const S& s) { return double(s.client_drafts.num_drafted); }},
      {"accepted_tokens", [](const S& s) { return double(s.client_drafts.num_accepted); }},
      {"verified_drafts", [](const S& s) { return double(s.client_drafts.num_verified_chains); }},
      {"mean_accepted_length", [](const S& s) { return s.client_drafts.MeanAcceptedLength(); }}};
  NEREID_ASSIGN_OR_RETURN(
      MetricFamily family,
      MetricFamily::Create(TRITONSERVER_METRIC_KIND_GAUGE, "nereid_llm_speculation",
                           "Totals of speculative decoding since the engine was loaded"));
  const auto add = [&](std::span<const Category> totals, const std::string& label) -> Status {
    for (const Category& total : totals) {
      NEREID_ASSIGN_OR_RETURN(Metric metric, family.New({{"total", total.label},
                                                         {"drafter", label},
                                                         {"model", model},
                                                         {"version", version}}));
      gauges_.push_back({std::move(metric), total.value});
    }
    return {};
  };
  if (!drafter.empty()) NEREID_RETURN_IF_ERROR(add(kOfDrafter, drafter));
  NEREID_RETURN_IF_ERROR(add(kOfClients, "client"));
  families_.push_back(std::move(family));
  return {};
}

Status LlmMetrics::AddHistograms(const std::string& model, const std::string& version) {
  for (const HistogramFamily& from : kHistogramFamilies) {
    NEREID_ASSIGN_OR_RETURN(
        MetricFamily family,
        MetricFamily::Create(TRITONSERVER_METRIC_KIND_HISTOGRAM, from.name, from.description));
    MetricFamily::Labels labels = {{"model", model}, {"version", version}};
    if (from.response_metric_type != nullptr) {
      labels.insert(labels.begin(), {"response_metric_type", from.response_metric_type});
    }
    NEREID_ASSIGN_OR_RETURN(Metric metric, family.NewHistogram(labels, from.buckets));
    histograms_.push_back(std::move(metric));
    families_.push_back(std::move(family));
  }
  return {};
}

void LlmMetrics::Update(const llm::EngineStats& stats, const AdapterUsage& adapters) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_idle = stats.counts.num_running == 0 && stats.counts.num_waiting == 0;
  if (now < next_ && !is_idle) return;
  next_ = now + period_;
  for (Gauge& gauge : gauges_) (void)gauge.metric.Set(gauge.value(stats));
  (void)UpdateAdapters(stats.max_num_sequences, adapters.names());
}

void LlmMetrics::CountRequest(size_t num_input_tokens, int64_t num_output_tokens) {
  const std::lock_guard lock(histograms_mutex_);
  (void)histograms_[0].Observe(static_cast<double>(num_input_tokens));
  (void)histograms_[1].Observe(static_cast<double>(num_output_tokens));
}

void LlmMetrics::CountSequence(int32_t num_output_tokens, const SequenceTiming& timing) {
  const std::lock_guard lock(histograms_mutex_);
  if (timing.first_scheduled_ns != 0) {
    (void)histograms_[5].Observe(Seconds(timing.first_scheduled_ns - timing.arrival_ns));
  }
  if (timing.first_token_ns == 0) return;  // the sequence ended without a token
  (void)histograms_[2].Observe(Seconds(timing.first_token_ns - timing.arrival_ns));
  for (const float gap : timing.token_gaps) (void)histograms_[4].Observe(gap);
  // Beam search emits all tokens at the end, so that there is no time between them.
  if (num_output_tokens < 2 || timing.last_token_ns == timing.first_token_ns) return;
  (void)histograms_[3].Observe(Seconds(timing.last_token_ns - timing.first_token_ns) /
                               (num_output_tokens - 1));
}

}  // namespace nereid::llm
