// A loaded model version: configuration, scheduler and instances. TRITONBACKEND_Model. Held by
// shared_ptr: the model table, every request and every response keep it alive; when the last of
// them goes, it ends on the reaper's thread. [any thread]
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "host/core/backend/backend.h"
#include "host/core/backend/instance.h"
#include "host/core/config/model_config.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/model/core_services.h"
#include "host/core/model/instance_runner.h"
#include "host/core/observe/memory_usage.h"
#include "host/core/observe/metrics.h"
#include "host/core/observe/statistics.h"
#include "host/core/request/request_plan.h"
#include "host/core/request/request_target.h"
#include "host/core/scheduling/scheduler.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

// The labels of an output of the model that a step names; empty: it has none, or does not serve.
using LabelsOf =
    std::function<std::vector<std::string>(const EnsembleStep& step, const std::string& output)>;

struct ModelLoadSpec {
  std::string model_dir;  // the folder of config.pbtxt, localised
  int64_t version = 1;
  std::string name_space;  // the repository, where models of several may have one name
  // From config::ReadModelConfig; instance groups and the rest are completed by Load.
  ModelConfig config;
  // Called once, on the reaper's thread, when nothing of the model is left: also after a failed
  // Load that got as far as the backend. May be empty.
  std::function<void()> on_destroyed;
  LabelsOf labels_of;  // of an ensemble's steps; may be empty
};

class Model final : public RequestTarget,
                    public std::enable_shared_from_this<Model>,
                    private MetricsSource {
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
  // Final once Load has returned, but for its instance groups and text, which UpdateInstances
  // changes elsewhere: ConfigJson has them.
  const ModelConfig& config() const { return config_; }
  std::string ConfigJson() const;

  // Ok when every instance's backend says so.
  Status CheckReady();
  // Memory of the backend's for the inputs of a request; nothing where it offers none, and for
  // models of several instances to choose from, of sequences, whose requests may be executed again,
  // and with texts, whose lengths are checked here and could be changed there.
  InputLoan OfferInput(uint64_t size_bytes);
  // Makes the instances those of `config`, of which only the instance groups count: new ones serve
  // when this returns, those that are too many finish what they have, and end. On error all stays
  // as it was. [one load thread at a time]
  Status UpdateInstances(const ModelConfig& config);
  // Refuses new requests (UNAVAILABLE) from now on; those inside finish.
  void StopIntake();
  // Requests taken and not yet released.
  uint64_t num_inflight() const { return num_inflight_.load(std::memory_order_acquire); }
  // Those, or the sequences that are open where these are more: what a stop waits for.
  uint64_t num_unfinished() const;
  double load_secs() const { return load_secs_; }
  // One element of the array "model_stats".
  std::string StatisticsJson() const;

  // ---- RequestTarget ----
  const RequestPlan& plan() const override { return plan_; }
  ModelStatistics& statistics() override { return statistics_; }
  Status Enqueue(InferRequest* request) override;
  Status CheckGoesOn(const InferRequest& request) const override;
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
  Status Initialize(const LabelsOf& labels_of);
  void BorrowLabels(const LabelsOf& labels_of);
  config::InstanceDefaults InstanceDefaults() const;
  // UNAVAILABLE when more of a GPU that the model wants is in use than --model-load-gpu-limit says.
  Status CheckGpuLimits() const;
  Status InitializeBackendModel();
  Status CreateInstances();
  // Has distributions of latencies kept where the server's options ask for them.
  Status KeepLatencies();
  // Joins the response cache where configuration and server ask for it.
  Status JoinCache();
  // An instance and its place in the scheduler.
  struct Seat {
    InstanceGroup group;
    std::shared_ptr<Instance> instance;
    std::unique_ptr<InstanceRunner> runner;  // null: passive, or not started
  };
  using Seats = std::vector<Seat>;

  Result<Seats> MakeSeats(std::vector<InstanceSpec> specs, const ModelConfig& config);
  Status InitializeInstances(const Seats& seats) const;
  Result<std::shared_ptr<Scheduler>> MakeScheduler(size_t num_instances);
  bool ExecutesInline() const;
  // On the first instance, by its inline entry point. [any thread]
  void ExecuteInline(InferRequest* request);
  // `index`: in the scheduler. `admitted`: as InstanceRunner has it. The thread itself comes with
  // the first request where nothing is to be done before.
  Status StartRunner(Seat* seat, size_t index, std::shared_future<bool> admitted);
  Status StartScheduling();
  // The threads of all instances, with the first request.
  Status StartRunners();
  // Starts the runners of seats that join the model. They serve once all of them are warm; where
  // one fails none does.
  Status StartMore(Seats* seats);
  // Lets instances finish and end, each on its own time. Returns the indices of their runners.
  std::vector<size_t> Retire(Seats seats);
  // Returns when those of Retire have been finalised, but for those that must wait for sequences or
  // for requests that their backend keeps, or when it takes too long.
  void WaitForLeavers(const std::vector<size_t>& indices);
  // A runner took its last batch. [its thread]
  void OnRunnerOver(size_t index);
  // Ends the instance of that runner, on the reaper's thread, once the backend has given back every
  // request of it; looks again after `retry_ns`, which doubles, until then.
  void EndLeaver(size_t index, uint64_t retry_ns);

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
  std::atomic<bool> runners_started_{false};
  std::shared_ptr<Scheduler> scheduler_;
  size_t next_index_ = 0;                                        // of a runner [load thread]
  std::map<int32_t, std::shared_ptr<std::mutex>> device_turns_;  // of DEVICE_BLOCKING backends
  mutable std::mutex seats_mutex_;                               // guards what follows
  Seats seats_;
  Seats leaving_;             // those that UpdateInstances took out, until they end
  std::set<size_t> awaited_;  // the runners of those that are about to end
  std::condition_variable leaver_ended_;
  std::string config_json_;  // empty: that of config_
};

}  // namespace nereid

NEREID_HANDLE(TRITONBACKEND_Model, nereid::Model);
