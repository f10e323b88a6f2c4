// The metrics page. Model metrics are pulled out of each model's statistics when the page is asked
// for; what backends and embedders register themselves lives in observe/custom_metrics.h. One a
// server. [any thread]
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/core/observe/cpu_metrics.h"
#include "host/core/observe/statistics.h"

namespace prometheus {
struct MetricFamily;
}

namespace nereid {

// What a model shows on the page. The metrics registry asks through it, so that observe/ need not
// know models.
class MetricsSource {
 public:
  virtual ~MetricsSource() = default;
  struct Reading {
    std::string model;
    std::string name_space;  // a further label where it is set
    int64_t version = 0;
    std::map<std::string, std::string> tags;  // of metric_tags; labels with a "_" before
    uint64_t pending = 0;                     // queued, not executing
    double load_secs = 0;
    bool cached = false;                   // its answers may come from the response cache
    const Latencies* latencies = nullptr;  // lives as long as the source; null: none are kept
    StatisticsSnapshot statistics;
  };
  virtual Reading Read() const = 0;
};

// What one GPU is doing; what is not known is empty.
struct GpuReading {
  std::string uuid;
  std::optional<double> utilization;  // 0 to 1
  std::optional<double> memory_total_bytes, memory_used_bytes;
  std::optional<double> power_usage_watts, power_limit_watts;
  std::optional<double> energy_joules;  // since it was first read
};

// Where the page asks for what lies on floors above. Empty functions: there is nothing to show.
struct MachineReaders {
  struct Pool {
    uint64_t total_bytes = 0, used_bytes = 0;
  };
  std::function<Pool()> pinned_pool;
  std::function<std::vector<GpuReading>()> gpus;
};

struct MetricsOptions {
  bool enabled = true;
  bool cpu = true;
  bool gpu = true;
  uint64_t interval_ms = 0;  // what the machine does is asked for at most as often; 0: every page
  bool counter_latencies = true;
  LatencyOptions latencies = {};
};

class Metrics {
 public:
  explicit Metrics(const MetricsOptions& options);

  const MetricsOptions& options() const { return options_; }
  // Before the first page.
  void set_readers(MachineReaders readers) { readers_ = std::move(readers); }

  // `source` is shown until it is removed; its owner removes it before it dies.
  void AddSource(const MetricsSource* source);
  void RemoveSource(const MetricsSource* source);

  // The page in Prometheus' text format. Waits for no request.
  std::string Page();

 private:
  // What the machine was doing when it was last asked.
  struct Machine {
    MachineReaders::Pool pinned_pool;
    std::vector<GpuReading> gpus;
    std::optional<double> cpu_utilization;
    std::optional<CpuMetrics::Memory> cpu_memory;
    uint64_t read_ns = 0;  // steady clock; 0: never
  };

  void ReadMachine();
  void AddMachine(std::vector<prometheus::MetricFamily>* page);
  void AddGpus(std::vector<prometheus::MetricFamily>* page);

  const MetricsOptions options_;
  MachineReaders readers_;
  std::mutex mutex_;  // guards what follows; held while sources are read
  CpuMetrics cpu_;
  Machine machine_;
  std::vector<const MetricsSource*> sources_;
};

}  // namespace nereid
