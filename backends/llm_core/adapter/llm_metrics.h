// The metrics of the `tensorrt_llm` model under their published names. Gauges are updated on the
// engine thread once per period; requests are counted on the response thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/llm_core/adapter/lora_requests.h"
#include "backends/llm_core/engine/engine.h"
#include "nereid/backend.h"

namespace nereid::llm {

struct SequenceTiming;

class LlmMetrics {
 public:
  // Returns null and logs the reason if the host has no metrics; a model can run without them.
  // `drafter`: a label of the figures on draft tokens; empty: the model has no drafter.
  static std::unique_ptr<LlmMetrics> Create(const std::string& model, int64_t version,
                                            int32_t period_ms, bool is_v1,
                                            const std::string& drafter);

  // Called after each step. Sets the gauges when the period is over or the engine is idle. [engine
  // thread]
  void Update(const llm::EngineStats& stats, const AdapterUsage& adapters);
  // Called when all sequences of a prompt have ended. `num_output_tokens`: of all of them. [any
  // thread]
  void CountRequest(size_t num_input_tokens, int64_t num_output_tokens);
  // Called when a sequence has ended. [any thread]
  void CountSequence(int32_t num_output_tokens, const SequenceTiming& timing);

 private:
  struct Gauge {
    Metric metric;
    double (*value)(const llm::EngineStats&);
  };

  explicit LlmMetrics(int32_t period_ms) : period_(period_ms) {}
  Status AddGauges(const std::string& model, const std::string& version, bool is_v1);
  Status AddTransferCounters(const std::string& model, const std::string& version);
  Status AddSpeculation(const std::string& model, const std::string& version,
                        const std::string& drafter);
  Status AddHistograms(const std::string& model, const std::string& version);
  // Sets the metric of LoRA adapters, whose labels are the names of those in use.
  Status UpdateAdapters(int32_t max_adapters, AdapterUsage::Names names);

  const std::chrono::milliseconds period_;
  std::chrono::steady_clock::time_point next_{};
  std::vector<MetricFamily> families_;  // must outlive the metrics
  std::vector<Gauge> gauges_;
  std::vector<Metric> counters_;  // always zero
  MetricFamily::Labels model_labels_;
  std::optional<MetricFamily> adapter_family_;
  // The metric whose label values are adapter_names_. Absent until a request uses an adapter.
  std::optional<Metric> adapters_in_use_;
  AdapterUsage::Names adapter_names_;
  std::mutex histograms_mutex_;     // guards histograms_
  std::vector<Metric> histograms_;  // in the order of kHistogramFamilies
};

}  // namespace nereid::llm
