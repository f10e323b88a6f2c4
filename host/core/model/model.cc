#include "host/core/model/model.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "host/core/backend/plugin.h"
#include "host/core/config/config_loader.h"
#include "host/core/memory/gpus.h"
#include "host/core/model/batch_library.h"
#include "host/core/observe/log.h"
#include "host/core/observe/trace.h"
#include "host/core/request/trace_tensors.h"
#include "host/core/scheduling/dynamic_batcher.h"
#include "host/core/scheduling/fifo_scheduler.h"
#include "host/core/scheduling/inline_scheduler.h"
#include "host/core/scheduling/sequence_batcher.h"
#include "host/core/scheduling/sequence_controls.h"

namespace nereid::core {
namespace {

// Records the latency of the first response of a request. [any sender's thread]
class FirstResponseObserver final : public ResponseObserver {
 public:
  FirstResponseObserver(LatencyMetrics* latencies, uint64_t start_ns)
      : latencies_(latencies), start_ns_(start_ns) {}
  void OnResponse(const InferResponse&) override {
    if (!seen_.exchange(true, std::memory_order_relaxed))
      latencies_->RecordFirstResponse(SteadyNowNs() - start_ns_);
  }

 private:
  LatencyMetrics* const latencies_;  // owned by the model, which the request keeps alive
  const uint64_t start_ns_;
  std::atomic<bool> seen_{false};
};

// Logs a warning if the result still exists 10 s after its creation. The caller keeps it while the
// model ends.
std::shared_ptr<void> WarnIfEndIsSlow(const Model& model, QueueTimeoutThread& timeout_thread) {
  constexpr uint64_t kWarnAfterNs = 10'000'000'000;
  auto model_name =
      std::make_shared<std::string>(StrCat("model '", model.name(), "' version ", model.version()));
  timeout_thread.PostAt(SteadyNowNs() + kWarnAfterNs, [weak = std::weak_ptr(model_name)] {
    const auto unfinished = weak.lock();
    if (unfinished != nullptr)
      NEREID_LOG_WARN(*unfinished,
                      ": destroying the model takes more than 10 s, waiting for its backend");
  });
  return model_name;
}

}  // namespace

Model::Model(ModelLoadSpec spec, CoreServices& services)
    : services_(services),
      model_dir_(std::move(spec.model_dir)),
      version_(spec.version),
      name_space_(std::move(spec.name_space)),
      on_destroyed_(std::move(spec.on_destroyed)),
      config_(std::move(spec.config)) {}

Result<std::shared_ptr<Model>> Model::Load(ModelLoadSpec spec, CoreServices& services) {
  const auto end = [&services](Model* model) {
    services.reaper.Post(
        [model, slow_end_warning = WarnIfEndIsSlow(*model, services.timeout_thread)] {
          const std::function<void()> on_destroyed = std::move(model->on_destroyed_);
          delete model;
          if (on_destroyed) on_destroyed();
        });
  };
  const uint64_t start_ns = SteadyNowNs();
  const StepLabelsFn step_labels = std::move(spec.step_labels);
  std::shared_ptr<Model> model(new Model(std::move(spec), services), end);
  NEREID_RETURN_IF_ERROR(model->Initialize(step_labels));
  model->load_secs_ = static_cast<double>(SteadyNowNs() - start_ns) * 1e-9;
  services.metrics.AddSource(model.get());
  model->registered_in_metrics_ = true;
  return model;
}

Status Model::Initialize(const StepLabelsFn& step_labels) {
  NEREID_ASSIGN_OR_RETURN(backend_, services_.backends.Get(config_, model_dir_, version_));
  NEREID_ASSIGN_OR_RETURN(config_, config::PrepareInstances(config_, InstanceDefaults()));
  NEREID_RETURN_IF_ERROR(CheckGpuLimits());
  NEREID_RETURN_IF_ERROR(InitializeBackendModel());
  NEREID_ASSIGN_OR_RETURN(config_, config::FinishConfig(config_));
  NEREID_ASSIGN_OR_RETURN(schema_, RequestSchema::Make(config_, version_, model_dir_));
  schema_.model_namespace = name_space_;
  CopyStepLabels(step_labels);
  NEREID_RETURN_IF_ERROR(SetUpCache());
  NEREID_RETURN_IF_ERROR(SetUpLatencies());
  NEREID_RETURN_IF_ERROR(instances_.Create());
  NEREID_ASSIGN_OR_RETURN(scheduler_, MakeScheduler(instances_.num_active()));
  return instances_.Bind(scheduler_.get());
}

// As in Triton, an ensemble output without labels uses the labels of the step that produces it.
void Model::CopyStepLabels(const StepLabelsFn& step_labels) {
  if (!config_.ensemble_scheduling || step_labels == nullptr) return;
  for (OutputSpec& output : schema_.outputs) {
    if (!output.labels.empty()) continue;
    for (const EnsembleStep& step : config_.ensemble_scheduling->steps) {
      for (const auto& [name, tensor] : step.output_map) {
        if (tensor == output.name) output.labels = step_labels(step, name);
      }
    }
  }
}

config::InstanceDefaults Model::InstanceDefaults() const {
  return {GpuDevices(services_.options.backends.min_compute_capability),
          backend_->attributes().preferred_groups};
}

Status Model::CheckGpuLimits() const {
  for (const InstanceGroup& group : config_.instance_groups) {
    if (group.kind != InstanceGroup::Kind::kGpu) continue;
    for (const int32_t device : group.gpus) {
      const auto limit = services_.options.gpu_load_limits.find(device);
      if (limit == services_.options.gpu_load_limits.end()) continue;
      NEREID_ASSIGN_OR_RETURN(const double share, GpuMonitor::Get().MemoryUtilization(device));
      if (share <= limit->second) continue;
      return UnavailableError("model '", name(), "' is not loaded: ", share,
                              " of the memory of GPU ", device, " is in use, its limit is ",
                              limit->second);
    }
  }
  return Status::Ok();
}

Status Model::InitializeBackendModel() {
  const auto entry = backend_->entry_points().model_initialize;
  model_initialize_called_ = true;
  if (entry == nullptr) return Status::Ok();
  initializing_ = true;
  Status status = GuardedCall(name(), "ModelInitialize", [&] { return entry(ToHandle(this)); });
  initializing_ = false;
  return status;
}

Status Model::SetUpLatencies() {
  for (const HistogramOverride& histogram : config_.metric_overrides) {
    if (histogram.family == LatencyMetrics::kFirstResponse) continue;
    NEREID_LOG_WARN("Metric family '", histogram.family,
                    "' in 'metric_identifier' is not a customizable metric in Triton core.");
  }
  const LatencyOptions& latency_options = services_.options.metrics.latencies;
  if (!latency_options.histograms && !latency_options.summaries) return Status::Ok();
  std::vector<double> buckets_ms;
  if (config_.decoupled) {
    buckets_ms = {100, 500, 2000, 5000};
    for (const HistogramOverride& histogram : config_.metric_overrides) {
      if (histogram.family == LatencyMetrics::kFirstResponse) buckets_ms = histogram.buckets;
    }
    const auto disordered = std::adjacent_find(buckets_ms.begin(), buckets_ms.end(),
                                               [](double a, double b) { return !(a < b); });
    if (disordered != buckets_ms.end()) {
      return InvalidArgError("model '", name(), "': model_metrics: buckets of '",
                             LatencyMetrics::kFirstResponse, "': expected ascending bounds, got ",
                             disordered[1], " after ", disordered[0]);
    }
  }
  statistics_.SetLatencyMetrics(
      std::make_unique<LatencyMetrics>(latency_options, buckets_ms, cache_ != nullptr));
  return Status::Ok();
}

Status Model::SetUpCache() {
  if (!config_.response_cache) return Status::Ok();
  const char* obstacle = nullptr;
  if (config_.decoupled) obstacle = "'decoupled' transaction policy";
  if (config_.sequence_batching) obstacle = "sequence batching scheduler";
  if (obstacle != nullptr) {
    return InvalidArgError("Response Cache does not currently support model ", name(), " with ",
                           obstacle, ". Please disable the response cache.");
  }
  cache_ = services_.cache.get();
  if (cache_ == nullptr) {
    NEREID_LOG_WARN("model '", name(),
                    "': response_cache.enable has no effect: the server has no "
                    "cache, see --cache-config");
  }
  return Status::Ok();
}

Result<std::shared_ptr<Scheduler>> Model::MakeScheduler(size_t num_instances) {
  QueueTimeoutThread* timeout_thread = &services_.timeout_thread;
  std::shared_ptr<Scheduler> scheduler;
  if (config_.sequence_batching) {
    NEREID_ASSIGN_OR_RETURN(auto states, MakeStateSpecs(config_, model_dir_, &services_.memory,
                                                        services_.options.state_growth_limits));
    scheduler = std::make_shared<SequenceBatcher>(config_, std::move(states), num_instances,
                                                  timeout_thread);
  } else if (config_.dynamic_batching) {
    NEREID_ASSIGN_OR_RETURN(auto strategy, LoadBatchLibrary(config_, version_, model_dir_,
                                                            backend_->directory(), ToHandle(this)));
    scheduler = std::make_shared<DynamicBatcher>(*config_.dynamic_batching, config_.max_batch_size,
                                                 timeout_thread, std::move(strategy));
  } else if (ExecutesInline()) {
    scheduler = std::make_shared<InlineScheduler>(
        [this](InferRequest* request) { instances_.ExecuteInline(request); });
  } else {
    scheduler = std::make_shared<FifoScheduler>(num_instances, timeout_thread);
  }
  return scheduler;
}

bool Model::ExecutesInline() const {
  return backend_->entry_points().instance_execute_inline != nullptr &&
         services_.rate_limiter == nullptr;
}

Model::~Model() {
  if (registered_in_metrics_) services_.metrics.RemoveSource(this);
  if (scheduler_ != nullptr) scheduler_->Stop();
  instances_.Clear();
  if (!model_initialize_called_ || backend_->entry_points().model_finalize == nullptr) return;
  const Status status = GuardedCall(name(), "ModelFinalize", [&] {
    return backend_->entry_points().model_finalize(ToHandle(this));
  });
  if (!status.ok()) {
    NEREID_LOG_ERROR("failed to finalise model '", name(), "': ", status.message());
  }
}

void Model::StopIntake() {
  accepting_.store(false, std::memory_order_release);
  scheduler_->StopIntake();
}

PostedInputMemory Model::GetPostedInput(uint64_t size_bytes) {
  const auto is_text = [](const InputSpec& input) { return input.data_type == DataType::kBytes; };
  if (backend_->entry_points().instance_offer_input == nullptr || config_.sequence_batching ||
      !accepting_.load(std::memory_order_acquire) ||
      std::any_of(schema_.inputs.begin(), schema_.inputs.end(), is_text)) {
    return {};
  }
  // Keeps the instance alive if it is retired meanwhile.
  const std::shared_ptr<Instance> instance = instances_.Single();
  return instance == nullptr ? PostedInputMemory() : instance->GetPostedInput(size_bytes);
}

Status Model::UpdateInstances(const ModelConfig& config) {
  NEREID_ASSIGN_OR_RETURN(const ModelConfig prepared,
                          config::PrepareInstances(config, InstanceDefaults()));
  NEREID_ASSIGN_OR_RETURN(const ModelConfig changed, config::WithInstanceGroups(config_, prepared));
  NEREID_ASSIGN_OR_RETURN(const auto retired, instances_.Update(changed));
  {
    std::lock_guard lock(config_json_mutex_);
    config_json_ = config::JsonText(changed);
  }
  instances_.WaitForRetired(retired);
  return Status::Ok();
}

std::string Model::ConfigJson() const {
  std::lock_guard lock(config_json_mutex_);
  return config_json_.empty() ? config::JsonText(config_) : config_json_;
}

std::string Model::StatisticsJson() const {
  return nereid::core::StatisticsJson(name(), version_, statistics_.Sum(), memory_usage_.Sum());
}

Status Model::Enqueue(InferRequest* request) {
  if (!accepting_.load(std::memory_order_acquire)) {
    return UnavailableError("model '", name(), "' version ", version_, " is being unloaded");
  }
  OnAccepted();
  if (InferenceTrace* trace = request->trace(); trace != nullptr) {
    trace->Report(TRITONSERVER_TRACE_QUEUE_START, SteadyNowNs());
    TraceInputs(trace, TRITONSERVER_TRACE_TENSOR_QUEUE_INPUT, *request);
  }
  if (cache_ != nullptr && cache_->AnswerFromCache(request)) return Status::Ok();
  if (LatencyMetrics* latencies = statistics_.latencies();
      latencies != nullptr && latencies->has_first_response()) {
    request->sink()->set_observer(
        std::make_unique<FirstResponseObserver>(latencies, request->request_start_ns));
  }
  // As in Triton, a request that no queue accepted does not count as a failure of the model.
  Status status = instances_.EnsureStarted();
  if (status.ok()) status = scheduler_->Enqueue(request);
  if (!status.ok()) OnReleased();
  return status;
}

// The steps of an ensemble may be sequence models.
Status Model::CheckContinuesSequence(const InferRequest& request) const {
  const bool may_have_sequences = config_.sequence_batching.has_value() || config_.is_ensemble();
  const bool is_begun = (request.flags() & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START) == 0 &&
                        IsCorrelationId(request.correlation_id());
  if (may_have_sequences && is_begun) return Status::Ok();
  const std::string in_ensemble =
      config_.is_ensemble() ? StrCat("in ensemble '", name(), "', ") : std::string();
  return UnavailableError(in_ensemble, request.LogPrefix(),
                          "Server is stopping, scheduler for model has stopped accepting new "
                          "inference requests");
}

uint64_t Model::num_unfinished() const {
  return std::max(num_inflight(), scheduler_ == nullptr ? 0 : scheduler_->num_open_sequences());
}

void Model::OnCancelled(InferRequest* request) {
  scheduler_->OnCancelled(request);
}

bool Model::auto_complete_config() const {
  return services_.backends.options().auto_complete_config;
}

Status Model::SetConfig(std::string_view json) {
  if (!initializing_) {
    return UnsupportedError("model '", name(),
                            "': the configuration can be set only while "
                            "TRITONBACKEND_ModelInitialize runs");
  }
  NEREID_ASSIGN_OR_RETURN(config_, config::MergeBackendConfig(config_, json));
  return Status::Ok();
}

MetricsSource::Reading Model::Read() const {
  Reading reading;
  reading.model = name();
  reading.name_space = name_space_;
  reading.version = version_;
  reading.tags = config_.metric_tags;
  reading.pending = scheduler_->num_pending();
  reading.load_secs = load_secs_;
  reading.cached = cache_ != nullptr;
  reading.latencies = statistics_.latencies();
  reading.statistics = statistics_.Sum();
  return reading;
}

}  // namespace nereid::core
