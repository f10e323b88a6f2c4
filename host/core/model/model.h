// A loaded model version: configuration, scheduler and instances. TRITONBACKEND_Model. Held by
// shared_ptr: the model table, every request and every response keep it alive; when the last of
// them goes, it ends on the reaper's thread. [any thread]
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/instance.h"
#include "base/handle_cast.h"
#include "config/model_config.h"
#include "model/core_services.h"
#include "model/instance_runner.h"
#include "nereid/status.h"
#include "observe/memory_usage.h"
#include "observe/metrics.h"
#include "observe/statistics.h"
#include "request/request_plan.h"
#include "request/request_target.h"
#include "scheduling/scheduler.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

struct ModelLoadSpec {
  std::string model_dir;  // the folder of config.pbtxt, localised
  int64_t version = 1;
  std::string name_space;  // the repository, where models of several may have one name
  // From config::ReadModelConfig; instance groups and the rest are completed by Load.
  ModelConfig config;
  // Called once, on the reaper's thread, when nothing of the model is left: also after a failed
  // Load that got as far as the backend. May be empty.
  std::function<void()> on_destroyed;
};

class Model final : public RequestTarget, private MetricsSource {
 public:
  // Finds and initialises the backend, completes the configuration, starts the instances, warms
  // up. The error is the model's UNAVAILABLE reason. `services` outlives the model. [load thread]
  static Result<std::shared_ptr<Model>> Load(ModelLoadSpec spec, CoreServices& services);
  // Stops the queue, joins the instances' threads, finalises instances and model. [reaper thread]
  ~Model() override;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::string& name() const { return config_.name; }
  int64_t version() const { return version_; }
  const std::string& directory() const { return model_dir_; }
  // Final once Load has returned.
  const ModelConfig& config() const { return config_; }

  // Ok when every instance's backend says so.
  Status CheckReady();
  // Refuses new requests (UNAVAILABLE) from now on; those inside finish.
  void StopIntake();
  // Requests taken and not yet released.
  uint64_t num_inflight() const { return num_inflight_.load(std::memory_order_acquire); }
  double load_secs() const { return load_secs_; }
  // One element of the array "model_stats".
  std::string StatisticsJson() const;

  // ---- RequestTarget ----
  const RequestPlan& plan() const override { return plan_; }
  ModelStatistics& statistics() override { return statistics_; }
  Status Enqueue(InferRequest* request) override;
  void OnCancelled(InferRequest* request) override;
  void OnTaken() override { num_inflight_.fetch_add(1, std::memory_order_acq_rel); }
  void OnReleased() override { num_inflight_.fetch_sub(1, std::memory_order_acq_rel); }

  // ---- what the backend asks ----
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
  Status Initialize();
  Status InitializeBackendModel();
  Status CreateInstances();
  // Joins the response cache where configuration and server ask for it.
  Status JoinCache();
  Status InitializeInstances();
  Result<std::shared_ptr<Scheduler>> MakeScheduler(size_t num_instances);
  Status StartRunner(Instance* instance);
  Status StartScheduling();

  Reading Read() const override;

  CoreServices& services_;
  const std::string model_dir_;
  const int64_t version_;
  const std::string name_space_;
  std::function<void()> on_destroyed_;
  ModelConfig config_;
  RequestPlan plan_;
  ModelStatistics statistics_;
  MemoryUsage memory_usage_;
  Backend* backend_ = nullptr;
  void* state_ = nullptr;
  bool initializing_ = false;  // inside ModelInitialize
  bool model_initialize_called_ = false;
  bool shown_in_metrics_ = false;
  double load_secs_ = 0;
  ResponseCache* cache_ = nullptr;  // null: every request is executed
  std::atomic<bool> accepting_{true};
  std::atomic<uint64_t> num_inflight_{0};
  std::vector<std::unique_ptr<Instance>> instances_;
  std::shared_ptr<Scheduler> scheduler_;
  std::vector<std::unique_ptr<InstanceRunner>> runners_;
};

}  // namespace nereid

NEREID_HANDLE(TRITONBACKEND_Model, nereid::Model);
