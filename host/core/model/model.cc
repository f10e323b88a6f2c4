#include "host/core/model/model.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <future>
#include <utility>

#include "base/clock.h"
#include "host/core/backend/guarded_call.h"
#include "host/core/config/config_loader.h"
#include "host/core/memory/gpu_devices.h"
#include "host/core/memory/gpu_monitor.h"
#include "host/core/model/batch_library.h"
#include "host/core/model/instance_specs.h"
#include "host/core/model/warmup.h"
#include "host/core/observe/log.h"
#include "host/core/observe/trace.h"
#include "host/core/request/trace_tensors.h"
#include "host/core/scheduling/direct_scheduler.h"
#include "host/core/scheduling/dynamic_batcher.h"
#include "host/core/scheduling/inline_scheduler.h"
#include "host/core/scheduling/sequence_batcher.h"
#include "host/core/scheduling/sequence_controls.h"

namespace nereid {
namespace {

// The environment may overrule the backend: for tests and for backends that overrate themselves.
bool LoadsInParallel(const Backend& backend) {
  const char* setting = std::getenv("TRITON_PARALLEL_INSTANCE_LOADING");
  if (setting == nullptr || *setting == '\0') return backend.attributes().parallel_instance_loading;
  return std::strcmp(setting, "1") == 0;
}

// Sees when the first response of a request comes. [any sender's thread]
class FirstResponseTap final : public ResponseTap {
 public:
  FirstResponseTap(Latencies* latencies, uint64_t start_ns)
      : latencies_(latencies), start_ns_(start_ns) {}
  void OnResponse(const InferResponse&) override {
    if (!seen_.exchange(true, std::memory_order_relaxed))
      latencies_->RecordFirstResponse(SteadyNowNs() - start_ns_);
  }

 private:
  Latencies* const latencies_;  // the model's, which the request keeps alive
  const uint64_t start_ns_;
  std::atomic<bool> seen_{false};
};

// Logs when the model has not ended soon after the result was made; the result lives as long as the
// end takes.
std::shared_ptr<void> WatchTheEnd(const Model& model, QueueAttendant& attendant) {
  constexpr uint64_t kPatienceNs = 10'000'000'000;
  auto ending =
      std::make_shared<std::string>(StrCat("model '", model.name(), "' version ", model.version()));
  attendant.PostAt(SteadyNowNs() + kPatienceNs, [weak = std::weak_ptr(ending)] {
    const auto still = weak.lock();
    if (still != nullptr) NEREID_LOG_WARN(*still, ": its backend takes more than 10 s to end it");
  });
  return ending;
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
    services.reaper.Post([model, watch = WatchTheEnd(*model, services.attendant)] {
      const std::function<void()> on_destroyed = std::move(model->on_destroyed_);
      delete model;
      if (on_destroyed) on_destroyed();
    });
  };
  const uint64_t start_ns = SteadyNowNs();
  const LabelsOf labels_of = std::move(spec.labels_of);
  std::shared_ptr<Model> model(new Model(std::move(spec), services), end);
  NEREID_RETURN_IF_ERROR(model->Initialize(labels_of));
  model->load_secs_ = static_cast<double>(SteadyNowNs() - start_ns) * 1e-9;
  services.metrics.AddSource(model.get());
  model->shown_in_metrics_ = true;
  return model;
}

Status Model::Initialize(const LabelsOf& labels_of) {
  NEREID_ASSIGN_OR_RETURN(backend_, services_.backends.Get(config_, model_dir_, version_));
  NEREID_ASSIGN_OR_RETURN(config_, config::PrepareInstances(config_, InstanceDefaults()));
  NEREID_RETURN_IF_ERROR(CheckGpuLimits());
  NEREID_RETURN_IF_ERROR(InitializeBackendModel());
  NEREID_ASSIGN_OR_RETURN(config_, config::FinishConfig(config_));
  NEREID_ASSIGN_OR_RETURN(plan_, RequestPlan::Make(config_, version_, model_dir_));
  plan_.model_namespace = name_space_;
  BorrowLabels(labels_of);
  NEREID_RETURN_IF_ERROR(JoinCache());
  NEREID_RETURN_IF_ERROR(KeepLatencies());
  NEREID_RETURN_IF_ERROR(CreateInstances());
  return StartScheduling();
}

// As in Triton: where an ensemble names no labels of an output, it has those of the step that gives
// it.
void Model::BorrowLabels(const LabelsOf& labels_of) {
  if (!config_.ensemble_scheduling || labels_of == nullptr) return;
  for (OutputSpec& output : plan_.outputs) {
    if (!output.labels.empty()) continue;
    for (const EnsembleStep& step : config_.ensemble_scheduling->steps) {
      for (const auto& [name, tensor] : step.output_map) {
        if (tensor == output.name) output.labels = labels_of(step, name);
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
      NEREID_ASSIGN_OR_RETURN(const double share, GpuMonitor::Get().MemoryShare(device));
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

Status Model::KeepLatencies() {
  for (const HistogramOverride& own : config_.metric_overrides) {
    if (own.family == Latencies::kFirstResponse) continue;
    NEREID_LOG_WARN("Metric family '", own.family,
                    "' in 'metric_identifier' is not a customizable metric in Triton core.");
  }
  const LatencyOptions& wanted = services_.options.metrics.latencies;
  if (!wanted.histograms && !wanted.summaries) return Status::Ok();
  std::vector<double> buckets_ms;
  if (config_.decoupled) {
    buckets_ms = {100, 500, 2000, 5000};
    for (const HistogramOverride& own : config_.metric_overrides) {
      if (own.family == Latencies::kFirstResponse) buckets_ms = own.buckets;
    }
    const auto disordered = std::adjacent_find(buckets_ms.begin(), buckets_ms.end(),
                                               [](double a, double b) { return !(a < b); });
    if (disordered != buckets_ms.end()) {
      return InvalidArgError("model '", name(), "': model_metrics: buckets of '",
                             Latencies::kFirstResponse, "': expected ascending bounds, got ",
                             disordered[1], " after ", disordered[0]);
    }
  }
  statistics_.Keep(std::make_unique<Latencies>(wanted, buckets_ms, cache_ != nullptr));
  return Status::Ok();
}

Status Model::JoinCache() {
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

Result<Model::Seats> Model::MakeSeats(std::vector<InstanceSpec> specs, const ModelConfig& config) {
  Seats seats;
  for (InstanceSpec& spec : specs) {
    Seat& seat = seats.emplace_back();
    if (spec.group < config.instance_groups.size()) seat.group = config.instance_groups[spec.group];
    seat.instance = std::make_shared<Instance>(std::move(spec), backend_, ToHandle(this),
                                               &statistics_.AddShard());
  }
  return seats;
}

Status Model::CreateInstances() {
  NEREID_ASSIGN_OR_RETURN(auto specs, MakeInstanceSpecs(config_, services_.options.host_policies));
  NEREID_ASSIGN_OR_RETURN(seats_, MakeSeats(std::move(specs), config_));
  return InitializeInstances(seats_);
}

Status Model::InitializeInstances(const Seats& seats) const {
  if (seats.size() == 1) return seats.front().instance->Initialize();
  const auto policy = LoadsInParallel(*backend_) ? std::launch::async : std::launch::deferred;
  std::vector<std::future<Status>> outcomes;
  for (const Seat& seat : seats) {
    outcomes.push_back(
        std::async(policy, [instance = seat.instance.get()] { return instance->Initialize(); }));
  }
  Status first_error;
  for (auto& outcome : outcomes) {
    // One after the other, the rest is not even tried once one has failed.
    if (!first_error.ok() && policy == std::launch::deferred) break;
    Status status = outcome.get();
    if (!status.ok() && first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}

Result<std::shared_ptr<Scheduler>> Model::MakeScheduler(size_t num_instances) {
  QueueAttendant* attendant = &services_.attendant;
  std::shared_ptr<Scheduler> scheduler;
  if (config_.sequence_batching) {
    NEREID_ASSIGN_OR_RETURN(auto states, MakeStateSpecs(config_, model_dir_, &services_.memory,
                                                        services_.options.state_growth_limits));
    scheduler =
        std::make_shared<SequenceBatcher>(config_, std::move(states), num_instances, attendant);
  } else if (config_.dynamic_batching) {
    NEREID_ASSIGN_OR_RETURN(auto strategy, LoadBatchLibrary(config_, version_, model_dir_,
                                                            backend_->directory(), ToHandle(this)));
    scheduler = std::make_shared<DynamicBatcher>(*config_.dynamic_batching, config_.max_batch_size,
                                                 attendant, std::move(strategy));
  } else if (ExecutesInline()) {
    scheduler = std::make_shared<InlineScheduler>(
        [this](InferRequest* request) { ExecuteInline(request); });
  } else {
    scheduler = std::make_shared<DirectScheduler>(num_instances, attendant);
  }
  return scheduler;
}

bool Model::ExecutesInline() const {
  return backend_->entry_points().instance_execute_inline != nullptr &&
         services_.rate_limiter == nullptr;
}

void Model::ExecuteInline(InferRequest* request) {
  const auto keep = shared_from_this();  // the request may be over before the call is
  std::shared_ptr<Instance> instance;
  {
    std::lock_guard lock(seats_mutex_);  // instances that leave are asked what they hold after that
    instance = seats_.front().instance;
    instance->Hold({&request, 1});
  }
  instance->ExecuteInline(request);
}

Status Model::StartRunner(Seat* seat, size_t index, std::shared_future<bool> admitted) {
  Instance* instance = seat->instance.get();
  const InstanceSpec& spec = instance->spec();
  std::unique_ptr<RateLimiter::Member> limited;
  if (RateLimiter* limiter = services_.rate_limiter.get(); limiter != nullptr) {
    NEREID_ASSIGN_OR_RETURN(limited, limiter->Join(seat->group, spec.device_id));
  }
  // A backend that blocks a device executes on it once at a time; sequences are exempt, as there.
  std::shared_ptr<std::mutex> turn;
  if (backend_->execution_policy() == TRITONBACKEND_EXECUTION_DEVICE_BLOCKING &&
      spec.kind == TRITONSERVER_INSTANCEGROUPKIND_GPU && !config_.sequence_batching) {
    turn = device_turns_[spec.device_id];
    if (turn == nullptr) turn = device_turns_[spec.device_id] = std::make_shared<std::mutex>();
  }
  std::function<Status()> warm_up;
  if (!config_.warmups.empty()) {
    warm_up = [this, instance] {
      return RunWarmups(config_, model_dir_, services_, this, instance);
    };
  }
  seat->runner = std::make_unique<InstanceRunner>(
      instance, index, scheduler_.get(), std::move(limited), std::move(turn), std::move(warm_up),
      std::move(admitted), [this, index] { OnRunnerOver(index); });
  if (!seat->runner->HasPrelude()) return Status::Ok();
  Status started = seat->runner->Start();
  if (!started.ok()) seat->runner.reset();
  return started;
}

// Passive instances have no thread: their backend uses them as it likes.
Status Model::StartScheduling() {
  const auto is_active = [](const Seat& seat) { return !seat.instance->spec().passive; };
  NEREID_ASSIGN_OR_RETURN(scheduler_,
                          MakeScheduler(std::count_if(seats_.begin(), seats_.end(), is_active)));
  for (Seat& seat : seats_) {
    if (is_active(seat)) NEREID_RETURN_IF_ERROR(StartRunner(&seat, next_index_++, {}));
  }
  Status first_error;
  for (const Seat& seat : seats_) {
    if (seat.runner == nullptr) continue;
    Status status = seat.runner->WaitWarm();
    if (!status.ok() && first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}

Status Model::StartRunners() {
  std::lock_guard lock(seats_mutex_);
  Status first_error;
  bool any_runs = false;
  for (const Seat& seat : seats_) {
    if (seat.runner == nullptr) continue;
    Status started = seat.runner->Start();
    any_runs |= started.ok();
    if (!started.ok() && first_error.ok()) first_error = std::move(started);
  }
  if (first_error.ok()) {
    runners_started_.store(true, std::memory_order_release);
  } else if (any_runs && !config_.sequence_batching) {  // whose sequences wait for one instance
    NEREID_LOG_WARN("model '", name(), "': ", first_error.message());
    return Status::Ok();  // the next request tries again
  }
  return first_error;
}

Model::~Model() {
  if (shown_in_metrics_) services_.metrics.RemoveSource(this);
  if (scheduler_ != nullptr) scheduler_->Stop();
  Seats seats, leaving;
  {
    std::lock_guard lock(seats_mutex_);  // the runners still look for themselves
    seats.swap(seats_);
    leaving.swap(leaving_);
  }
  for (Seats* all : {&seats, &leaving}) {
    for (Seat& seat : *all) seat.runner.reset();
    all->clear();
  }
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

Status Model::CheckReady() {
  std::vector<std::shared_ptr<Instance>> instances;
  {
    std::lock_guard lock(seats_mutex_);
    for (const Seat& seat : seats_) instances.push_back(seat.instance);
  }
  for (const auto& instance : instances) NEREID_RETURN_IF_ERROR(instance->CheckReady());
  return Status::Ok();
}

InputLoan Model::OfferInput(uint64_t size_bytes) {
  const auto is_text = [](const InputSpec& input) { return input.data_type == DataType::kBytes; };
  if (backend_->entry_points().instance_offer_input == nullptr || config_.sequence_batching ||
      !accepting_.load(std::memory_order_acquire) ||
      std::any_of(plan_.inputs.begin(), plan_.inputs.end(), is_text)) {
    return {};
  }
  std::shared_ptr<Instance> instance;  // one that leaves does not end meanwhile
  {
    std::lock_guard lock(seats_mutex_);
    if (seats_.size() == 1) instance = seats_.front().instance;
  }
  // Without the lock, which is that of the configuration, too: backends read it as they like.
  return instance == nullptr ? InputLoan() : instance->OfferInput(size_bytes);
}

std::string Model::ConfigJson() const {
  std::lock_guard lock(seats_mutex_);
  return config_json_.empty() ? config::JsonText(config_) : config_json_;
}

std::string Model::StatisticsJson() const {
  return nereid::StatisticsJson(name(), version_, statistics_.Sum(), memory_usage_.Sum());
}

Status Model::Enqueue(InferRequest* request) {
  if (!accepting_.load(std::memory_order_acquire)) {
    return UnavailableError("model '", name(), "' version ", version_, " is being unloaded");
  }
  OnTaken();
  if (InferenceTrace* trace = request->trace(); trace != nullptr) {
    trace->Report(TRITONSERVER_TRACE_QUEUE_START, SteadyNowNs());
    TraceInputs(trace, TRITONSERVER_TRACE_TENSOR_QUEUE_INPUT, *request);
  }
  if (cache_ != nullptr && cache_->Answer(request)) return Status::Ok();
  if (Latencies* latencies = statistics_.latencies();
      latencies != nullptr && latencies->has_first_response()) {
    request->sink()->set_tap(
        std::make_unique<FirstResponseTap>(latencies, request->request_start_ns));
  }
  // As Triton counts, what no queue took is no failure of the model.
  Status status;
  if (!runners_started_.load(std::memory_order_acquire)) status = StartRunners();
  if (status.ok()) status = scheduler_->Enqueue(request);
  if (!status.ok()) OnReleased();
  return status;
}

// An ensemble may have steps with sequences.
Status Model::CheckGoesOn(const InferRequest& request) const {
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

}  // namespace nereid
