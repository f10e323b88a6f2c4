// The metrics of the `tensorrt_llm` model on the host's metrics page, under their published names.
// Renewed from the engine's thread every so often; requests are counted on the response thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/llm_core/engine/engine.h"
#include "nereid/backend.h"

namespace nereid::llm_adapter {

struct Timing;

class LlmMetrics {
 public:
  // A host without metrics is no reason to fail: then there are none, and the log says why.
  static std::unique_ptr<LlmMetrics> Create(const std::string& model, int64_t version,
                                            int32_t period_ms);

  // After each step: sets the gauges when the period is over, or nothing is left to do.
  // [engine thread]
  void Update(const llm::EngineStats& stats);
  // A sequence has ended. [any thread]
  void CountRequest(size_t num_input_tokens, int32_t num_output_tokens, const Timing& timing);

 private:
  struct Gauge {
    Metric metric;
    double (*value)(const llm::EngineStats&);
  };

  explicit LlmMetrics(int32_t period_ms) : period_(period_ms) {}
  Status AddGauges(const std::string& model, const std::string& version);
  Status AddHistograms(const std::string& model, const std::string& version);

  const std::chrono::milliseconds period_;
  std::chrono::steady_clock::time_point next_{};
  std::vector<MetricFamily> families_;  // outlive the metrics
  std::vector<Gauge> gauges_;
  std::mutex histograms_mutex_;     // guards histograms_
  std::vector<Metric> histograms_;  // in the order of kHistogramFamilies
};

}  // namespace nereid::llm_adapter
