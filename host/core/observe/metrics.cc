#include "host/core/observe/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <span>
#include <sstream>

#include "base/clock.h"
#include "host/core/observe/custom_metrics.h"

namespace nereid::core {
namespace {

using Reading = MetricsSource::Reading;

prometheus::MetricFamily MakeFamily(const char* name, const char* help,
                                    prometheus::MetricType type) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

void AddLabels(const Reading& reading, prometheus::ClientMetric* metric) {
  for (const auto& [tag, text] : reading.tags) metric->label.push_back({"_" + tag, text});
  metric->label.push_back({"model", reading.model});
  metric->label.push_back({"version", std::to_string(reading.version)});
  if (!reading.name_space.empty()) metric->label.push_back({"namespace", reading.name_space});
}

prometheus::ClientMetric MakeMetric(const Reading& reading, double value) {
  prometheus::ClientMetric metric;
  AddLabels(reading, &metric);
  metric.counter.value = value;
  metric.gauge.value = value;
  return metric;
}

// A metric family with one value per model.
struct ModelFamily {
  const char* name;
  const char* help;
  prometheus::MetricType type;
  double (*read)(const Reading&);
};

double Us(const CountAndNs& value) {
  return static_cast<double>(value.ns / 1000);
}

constexpr ModelFamily kCounts[] = {
    {"nv_inference_count", "Number of inferences performed (does not include cached requests)",
     prometheus::MetricType::Counter,
     [](const Reading& r) { return static_cast<double>(r.statistics.inference_count); }},
    {"nv_inference_exec_count",
     "Number of model executions performed (does not include cached requests)",
     prometheus::MetricType::Counter,
     [](const Reading& r) { return static_cast<double>(r.statistics.execution_count); }},
};
constexpr ModelFamily kLatencies[] = {
    {"nv_inference_request_duration_us",
     "Cumulative inference request duration in microseconds (includes cached requests)",
     prometheus::MetricType::Counter, [](const Reading& r) { return Us(r.statistics.success); }},
    {"nv_inference_queue_duration_us",
     "Cumulative inference queuing duration in microseconds (includes cached requests)",
     prometheus::MetricType::Counter, [](const Reading& r) { return Us(r.statistics.queue); }},
    {"nv_inference_compute_input_duration_us",
     "Cumulative compute input duration in microseconds (does not include cached requests)",
     prometheus::MetricType::Counter,
     [](const Reading& r) { return Us(r.statistics.compute_input); }},
    {"nv_inference_compute_infer_duration_us",
     "Cumulative compute inference duration in microseconds (does not include cached requests)",
     prometheus::MetricType::Counter,
     [](const Reading& r) { return Us(r.statistics.compute_infer); }},
    {"nv_inference_compute_output_duration_us",
     "Cumulative inference compute output duration in microseconds (does not include cached "
     "requests)",
     prometheus::MetricType::Counter,
     [](const Reading& r) { return Us(r.statistics.compute_output); }},
};
constexpr ModelFamily kCache[] = {
    {"nv_cache_num_hits_per_model", "Number of cache hits per model",
     prometheus::MetricType::Counter,
     [](const Reading& r) { return static_cast<double>(r.statistics.cache_hit.count); }},
    {"nv_cache_num_misses_per_model", "Number of cache misses per model",
     prometheus::MetricType::Counter,
     [](const Reading& r) { return static_cast<double>(r.statistics.cache_miss.count); }},
    {"nv_cache_hit_duration_per_model", "Total cache hit duration per model, in microseconds",
     prometheus::MetricType::Counter, [](const Reading& r) { return Us(r.statistics.cache_hit); }},
    {"nv_cache_miss_duration_per_model",
     "Total cache miss (insert+lookup) duration per model, in microseconds",
     prometheus::MetricType::Counter, [](const Reading& r) { return Us(r.statistics.cache_miss); }},
};
constexpr ModelFamily kGauges[] = {
    {"nv_inference_pending_request_count",
     "Instantaneous number of pending requests awaiting execution per-model.",
     prometheus::MetricType::Gauge,
     [](const Reading& r) { return static_cast<double>(r.pending); }},
    {"nv_model_load_duration_secs", "Model load time in seconds", prometheus::MetricType::Gauge,
     [](const Reading& r) { return r.load_secs; }},
};

void AddFamilies(std::span<const ModelFamily> families, const std::vector<Reading>& readings,
                 std::vector<prometheus::MetricFamily>* page) {
  for (const ModelFamily& family : families) {
    auto shown = MakeFamily(family.name, family.help, family.type);
    for (const Reading& reading : readings) {
      shown.metric.push_back(MakeMetric(reading, family.read(reading)));
    }
    page->push_back(std::move(shown));
  }
}

// While a model is reloaded, its old and its new load have the same labels. Only the new one is
// shown.
void SortAndKeepNewest(std::vector<Reading>* readings) {
  std::reverse(readings->begin(), readings->end());
  std::stable_sort(readings->begin(), readings->end(), [](const Reading& a, const Reading& b) {
    return std::tie(a.model, a.version, a.name_space) < std::tie(b.model, b.version, b.name_space);
  });
  const auto same = [](const Reading& a, const Reading& b) {
    return a.model == b.model && a.version == b.version && a.name_space == b.name_space;
  };
  readings->erase(std::unique(readings->begin(), readings->end(), same), readings->end());
}

void AddFailures(const std::vector<Reading>& readings,
                 std::vector<prometheus::MetricFamily>* page) {
  auto shown = MakeFamily("nv_inference_request_failure",
                          "Number of failed inference requests, all batch sizes",
                          prometheus::MetricType::Counter);
  for (const Reading& reading : readings) {
    for (size_t i = 0; i < kNumFailureReasons; ++i) {
      auto metric = MakeMetric(reading, static_cast<double>(reading.statistics.failures[i]));
      const auto version = std::find_if(metric.label.begin(), metric.label.end(),
                                        [](const auto& label) { return label.name == "version"; });
      metric.label.insert(version, {"reason", FailureReasonName(static_cast<FailureReason>(i))});
      shown.metric.push_back(std::move(metric));
    }
  }
  page->push_back(std::move(shown));
}

// Adds histograms and summaries. Each family shows all models that record it.
void AddLatencies(const std::vector<Reading>& readings,
                  std::vector<prometheus::MetricFamily>* page) {
  std::map<std::string, prometheus::MetricFamily> families;
  for (const Reading& reading : readings) {
    if (reading.latencies == nullptr) continue;
    reading.latencies->Visit([&](const char* name, const char* help, prometheus::MetricType type,
                                 prometheus::ClientMetric value) {
      const auto [it, added] = families.try_emplace(name);
      if (added) it->second = MakeFamily(name, help, type);
      AddLabels(reading, &value);
      it->second.metric.push_back(std::move(value));
    });
  }
  for (auto& [name, family] : families) page->push_back(std::move(family));
}

void AddGauge(const char* name, const char* help, double value,
              std::vector<prometheus::MetricFamily>* page) {
  auto family = MakeFamily(name, help, prometheus::MetricType::Gauge);
  family.metric.emplace_back().gauge.value = value;
  page->push_back(std::move(family));
}

// A metric family with one value per GPU.
struct GpuFamily {
  const char* name;
  const char* help;
  prometheus::MetricType type;
  std::optional<double> GpuReading::*value;
};
constexpr GpuFamily kGpuFamilies[] = {
    {"nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", prometheus::MetricType::Gauge,
     &GpuReading::utilization},
    {"nv_gpu_memory_total_bytes", "GPU total memory, in bytes", prometheus::MetricType::Gauge,
     &GpuReading::memory_total_bytes},
    {"nv_gpu_memory_used_bytes", "GPU used memory, in bytes", prometheus::MetricType::Gauge,
     &GpuReading::memory_used_bytes},
    {"nv_gpu_power_usage", "GPU power usage in watts", prometheus::MetricType::Gauge,
     &GpuReading::power_usage_watts},
    {"nv_gpu_power_limit", "GPU power management limit in watts", prometheus::MetricType::Gauge,
     &GpuReading::power_limit_watts},
    {"nv_energy_consumption", "GPU energy consumption in joules since it was first asked for",
     prometheus::MetricType::Counter, &GpuReading::energy_joules},
};

MetricsOptions WithEnvironment(MetricsOptions options) {
  if (std::getenv("TRITON_SERVER_CPU_ONLY") != nullptr) options.gpu = false;
  return options;
}

}  // namespace

std::optional<double> CpuMetrics::Utilization() {
  std::ifstream file("/proc/stat");
  std::string label;
  file >> label;
  // The fields are user, nice, system, idle, iowait, irq, softirq and steal.
  uint64_t total = 0;
  uint64_t idle = 0;
  for (int i = 0; i < 8; ++i) {
    uint64_t ticks = 0;
    if (!(file >> ticks)) return std::nullopt;
    total += ticks;
    if (i == 3 || i == 4) idle += ticks;
  }
  const uint64_t busy = total - idle;
  const bool first = last_total_ == 0;
  const double share = total > last_total_ && busy >= last_busy_
                           ? static_cast<double>(busy - last_busy_) / (total - last_total_)
                           : 0.0;
  last_busy_ = busy;
  last_total_ = total;
  if (first) return std::nullopt;
  return share;
}

std::optional<CpuMetrics::Memory> CpuMetrics::ReadMemory() {
  std::ifstream file("/proc/meminfo");
  std::optional<uint64_t> total, available;
  std::string key;
  uint64_t kib = 0;
  while (!(total && available) && file >> key >> kib) {
    if (key == "MemTotal:") total = kib * 1024;
    if (key == "MemAvailable:") available = kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  if (!total || !available) return std::nullopt;
  return Memory{*total, *total - *available};
}

Metrics::Metrics(const MetricsOptions& options) : options_(WithEnvironment(options)) {
  if (options_.cpu) cpu_.Utilization();
}

void Metrics::AddSource(const MetricsSource* source) {
  std::lock_guard lock(mutex_);
  sources_.push_back(source);
}

void Metrics::RemoveSource(const MetricsSource* source) {
  std::lock_guard lock(mutex_);
  sources_.erase(std::remove(sources_.begin(), sources_.end(), source), sources_.end());
}

std::string Metrics::Page() {
  std::vector<prometheus::MetricFamily> page;
  std::lock_guard lock(mutex_);
  std::vector<Reading> readings;
  for (const MetricsSource* source : sources_) readings.push_back(source->Read());
  SortAndKeepNewest(&readings);
  constexpr ModelFamily kSuccess[] = {
      {"nv_inference_request_success", "Number of successful inference requests, all batch sizes",
       prometheus::MetricType::Counter,
       [](const Reading& r) { return static_cast<double>(r.statistics.success.count); }}};
  AddFamilies(kSuccess, readings, &page);
  AddFailures(readings, &page);
  AddFamilies(kCounts, readings, &page);
  if (options_.counter_latencies) AddFamilies(kLatencies, readings, &page);
  AddFamilies(kGauges, readings, &page);
  AddLatencies(readings, &page);
  std::erase_if(readings, [](const Reading& reading) { return !reading.cached; });
  if (!readings.empty()) AddFamilies(kCache, readings, &page);
  AddMachine(&page);
  CollectCustomMetrics(&page);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, page);
  return std::move(out).str();
}

// Reads the machine at most once per interval, because some values cost a driver call.
void Metrics::ReadMachine() {
  const uint64_t now_ns = SteadyNowNs();
  const uint64_t passed_ms = (now_ns - machine_.read_ns) / 1'000'000;
  if (machine_.read_ns != 0 && passed_ms < options_.interval_ms) return;
  machine_.read_ns = now_ns;
  if (readers_.pinned_pool) machine_.pinned_pool = readers_.pinned_pool();
  if (options_.gpu && readers_.gpus) machine_.gpus = readers_.gpus();
  if (!options_.cpu) return;
  machine_.cpu_utilization = cpu_.Utilization();
  machine_.cpu_memory = CpuMetrics::ReadMemory();
}

void Metrics::AddMachine(std::vector<prometheus::MetricFamily>* page) {
  ReadMachine();
  // Shown even without a pool, with size 0, for scrapers that expect Triton's metrics.
  AddGauge("nv_pinned_memory_pool_total_bytes", "Pinned memory pool total memory size, in bytes",
           static_cast<double>(machine_.pinned_pool.total_bytes), page);
  AddGauge("nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes",
           static_cast<double>(machine_.pinned_pool.used_bytes), page);
  AddGpus(page);
  if (machine_.cpu_utilization) {
    AddGauge("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", *machine_.cpu_utilization,
             page);
  }
  if (machine_.cpu_memory) {
    AddGauge("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes",
             static_cast<double>(machine_.cpu_memory->total_bytes), page);
    AddGauge("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes",
             static_cast<double>(machine_.cpu_memory->used_bytes), page);
  }
}

void Metrics::AddGpus(std::vector<prometheus::MetricFamily>* page) {
  for (const GpuFamily& family : kGpuFamilies) {
    auto shown = MakeFamily(family.name, family.help, family.type);
    for (const GpuReading& gpu : machine_.gpus) {
      const std::optional<double>& value = gpu.*family.value;
      if (!value) continue;
      prometheus::ClientMetric& metric = shown.metric.emplace_back();
      metric.label.push_back({"gpu_uuid", gpu.uuid});
      metric.counter.value = *value;
      metric.gauge.value = *value;
    }
    if (!shown.metric.empty()) page->push_back(std::move(shown));
  }
}

}  // namespace nereid::core
