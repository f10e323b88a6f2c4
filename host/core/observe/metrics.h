// The metrics page of a server, in Prometheus' text format. Model metrics are read from each
// model's statistics when the page is requested. observe/custom_metrics.h has the metrics that
// backends and applications register. One object per server. [any thread]
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/core/observe/statistics.h"

namespace prometheus {
struct MetricFamily;
}

namespace nereid::core {

// Provides the metrics of a model. It is an interface so that observe/ does not depend on models.
class MetricsSource {
 public:
  virtual ~MetricsSource() = default;
  struct Reading {
    std::string model;
    std::string name_space;  // an additional label unless it is empty
    int64_t version = 0;
    std::map<std::string, std::string> tags;  // metric_tags; their label names start with "_"
    uint64_t pending = 0;                     // number of requests queued but not executing
    double load_secs = 0;
    bool cached = false;  // its responses may come from the response cache
    // Valid as long as the source exists; null if no distributions are recorded.
    const LatencyMetrics* latencies = nullptr;
    StatisticsSnapshot statistics;
  };
  virtual Reading Read() const = 0;
};

// A reading of one GPU. Unknown values are empty.
struct GpuReading {
  std::string uuid;
  std::optional<double> utilization;  // 0 to 1
  std::optional<double> memory_total_bytes, memory_used_bytes;
  std::optional<double> power_usage_watts, power_limit_watts;
  std::optional<double> energy_joules;  // consumed since the first reading
};

// Functions that read the state of the machine from layers above observe/. An empty function means
// that there is nothing to show.
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
  uint64_t interval_ms = 0;  // shortest time between two readings of the machine; 0: each page
  bool counter_latencies = true;
  LatencyOptions latencies = {};
};

// CPU utilization and memory of the machine, read from /proc. [any thread, one at a time]
class CpuMetrics {
 public:
  struct Memory {
    uint64_t total_bytes;
    uint64_t used_bytes;
  };

  // The busy share of all CPUs since the last call, 0 to 1. The first call returns nullopt.
  std::optional<double> Utilization();
  static std::optional<Memory> ReadMemory();

 private:
  uint64_t last_busy_ = 0;  // in ticks
  uint64_t last_total_ = 0;
};

class Metrics {
 public:
  explicit Metrics(const MetricsOptions& options);

  const MetricsOptions& options() const { return options_; }
  // Must be called before the first page is requested.
  void set_readers(MachineReaders readers) { readers_ = std::move(readers); }

  // Shows `source` until RemoveSource. Its owner must remove it before destroying it.
  void AddSource(const MetricsSource* source);
  void RemoveSource(const MetricsSource* source);

  // The page in Prometheus' text format. It does not wait for requests.
  std::string Page();

 private:
  // The state of the machine at the last reading.
  struct MachineReading {
    MachineReaders::Pool pinned_pool;
    std::vector<GpuReading> gpus;
    std::optional<double> cpu_utilization;
    std::optional<CpuMetrics::Memory> cpu_memory;
    uint64_t read_ns = 0;  // time of the reading, steady clock; 0: never
  };

  void ReadMachine();
  void AddMachine(std::vector<prometheus::MetricFamily>* page);
  void AddGpus(std::vector<prometheus::MetricFamily>* page);

  const MetricsOptions options_;
  MachineReaders readers_;
  std::mutex mutex_;  // guards the members below; locked while sources are read
  CpuMetrics cpu_;
  MachineReading machine_;
  std::vector<const MetricsSource*> sources_;
};

}  // namespace nereid::core
