// A loaded model version: configuration, scheduler and instances (TRITONBACKEND_Model). Shared
// ownership: the model table, every request and every response keep it alive. After the last
// reference it is destroyed on a reaper thread. [any thread]
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/core/backend/backend.h"
#include "host/core/config/model_config.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/model/core_services.h"
#include "host/core/model/model_instances.h"
#include "host/core/observe/metrics.h"
#include "host/core/observe/statistics.h"
#include "host/core/request/request_schema.h"
#include "host/core/scheduling/scheduler.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid::core {

// Returns the labels of output `output` of the model that `step` calls; empty if it has none or
// does not serve.
using StepLabelsFn =
    std::function<std::vector<std::string>(const EnsembleStep& step, const std::string& output)>;

struct ModelLoadSpec {
  std::string model_dir;  // local directory of config.pbtxt
  int64_t version = 1;
  std::string name_space;  // the repository path; empty without model namespacing
  // From config::ReadModelConfig. Load completes instance groups and the rest.
  ModelConfig config;
  // Called once on a reaper thread after the model was destroyed, also after a failed Load that got
  // as far as creating the model. May be empty.
  std::function<void()> on_destroyed;
  StepLabelsFn step_labels;  // for the steps of an ensemble; may be empty
};

class Model final : public RequestTarget,
                    public std::enable_shared_from_this<Model>,
                    private MetricsSource {
 public:
  // Finds and initialises the backend, completes the configuration, starts the instances and runs
  // the warm-up. The error becomes the UNAVAILABLE reason of the model. `services` must outlive the
  // model. [load thread]
  static Result<std::shared_ptr<Model>> Load(ModelLoadSpec spec, CoreServices& services);
  // Stops the scheduler, joins the instance threads, finalizes instances and model. [reaper thread]
  ~Model() override;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::string& name() const { return config_.name; }
  int64_t version() const { return version_; }
  const std::string& directory() const { return model_dir_; }
  // Constant after Load, except that it lacks the instance groups of a later UpdateInstances.
  // ConfigJson has the current ones.
  const ModelConfig& config() const { return config_; }
  std::string ConfigJson() const;

  // Ok if the backend reports every instance as ready.
  Status CheckReady() const { return instances_.CheckReady(); }
  // Memory of the backend for the inputs of a request. Empty if the backend posts none, if the
  // model has several instances, and for sequence models, whose requests may be executed again.
  // Also empty for models with BYTES inputs: the host checks the lengths of their elements, and the
  // backend's side could change them afterwards.
  PostedInputMemory GetPostedInput(uint64_t size_bytes);
  // Changes the instances to those of `config`, of which only the instance groups are used. New
  // instances serve when this returns. Surplus instances finish their requests and end. On error
  // nothing changes. [one load thread at a time]
  Status UpdateInstances(const ModelConfig& config);
  // Refuses new requests (UNAVAILABLE) from now on. Requests in flight complete.
  void StopIntake();
  // Number of requests accepted and not yet released.
  uint64_t num_inflight() const { return num_inflight_.load(std::memory_order_acquire); }
  // The larger of num_inflight and the number of open sequences: a stopping server waits until it
  // is 0.
  uint64_t num_unfinished() const;
  double load_secs() const { return load_secs_; }
  // One element of the JSON array "model_stats".
  std::string StatisticsJson() const;

  // ---- RequestTarget ----
  const RequestSchema& schema() const override { return schema_; }
  ModelStatistics& statistics() override { return statistics_; }
  Status Enqueue(InferRequest* request) override;
  Status CheckContinuesSequence(const InferRequest& request) const override;
  void OnCancelled(InferRequest* request) override;
  void OnAccepted() override { num_inflight_.fetch_add(1, std::memory_order_acq_rel); }
  void OnReleased() override { num_inflight_.fetch_sub(1, std::memory_order_acq_rel); }

  // ---- called by the backend through the C API ----
  CoreServices& services() const { return services_; }
  Backend* backend() const { return backend_; }
  bool auto_complete_config() const;
  // TRITONBACKEND_ModelSetConfig. UNSUPPORTED after ModelInitialize has returned.
  Status SetConfig(std::string_view json);
  MemoryUsage& memory_usage() { return memory_usage_; }
  void* state() const { return state_; }
  void set_state(void* state) { state_ = state; }

 private:
  Model(ModelLoadSpec spec, CoreServices& services);
  Status Initialize(const StepLabelsFn& step_labels);
  void CopyStepLabels(const StepLabelsFn& step_labels);
  config::InstanceDefaults InstanceDefaults() const;
  // UNAVAILABLE if the used fraction of the memory of one of the model's GPUs exceeds
  // --model-load-gpu-limit.
  Status CheckGpuLimits() const;
  Status InitializeBackendModel();
  // Creates latency histograms and summaries as the server's options specify.
  Status SetUpLatencies();
  // Uses the response cache if the configuration and the server enable it.
  Status SetUpCache();
  Result<std::shared_ptr<Scheduler>> MakeScheduler(size_t num_instances);
  bool ExecutesInline() const;

  Reading Read() const override;

  CoreServices& services_;
  const std::string model_dir_;
  const int64_t version_;
  const std::string name_space_;
  std::function<void()> on_destroyed_;
  ModelConfig config_;
  RequestSchema schema_;
  ModelStatistics statistics_;
  MemoryUsage memory_usage_;
  Backend* backend_ = nullptr;
  void* state_ = nullptr;
  bool initializing_ = false;  // true while ModelInitialize runs
  bool model_initialize_called_ = false;
  bool registered_in_metrics_ = false;
  double load_secs_ = 0;
  ResponseCache* cache_ = nullptr;  // null: no response cache
  std::atomic<bool> accepting_{true};
  std::atomic<uint64_t> num_inflight_{0};
  std::shared_ptr<Scheduler> scheduler_;
  ModelInstances instances_{this};
  mutable std::mutex config_json_mutex_;  // guards config_json_
  std::string config_json_;               // empty: use config_
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONBACKEND_Model, nereid::core::Model);
