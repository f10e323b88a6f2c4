// An instance of a model (TRITONBACKEND_ModelInstance), and the only place that calls the backend's
// Execute functions. Does not know the scheduler. [its instance thread; load thread before, reaper
// thread after]
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/host_binding.h"
#include "host/core/backend/backend.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/handle/json_message.h"
#include "host/core/memory/owned_memory.h"
#include "host/core/observe/statistics.h"
#include "host/core/request/infer_request.h"
#include "nereid/status.h"

namespace nereid::core {

struct InstanceSpec {
  std::string name;
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  int32_t device_id = 0;
  bool passive = false;
  std::vector<std::string> profiles;
  std::vector<std::pair<std::string, int64_t>> secondary_devices;  // (kind, id)
  std::string host_policy_name;
  std::string host_policy_json;
  HostBinding binding;  // CPU binding of the instance thread
  size_t group = 0;     // index into the configuration's instance groups
};

// Memory that a backend posted for an input. Released by the destructor. Move-only.
class PostedInputMemory {
 public:
  PostedInputMemory() = default;
  PostedInputMemory(void* base, NEREID_ReleaseFn_t release, void* release_userp)
      : base_(base), release_(release), release_userp_(release_userp) {}
  PostedInputMemory(PostedInputMemory&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        release_(other.release_),
        release_userp_(other.release_userp_) {}
  PostedInputMemory& operator=(PostedInputMemory&&) = delete;
  ~PostedInputMemory() {
    if (base_ != nullptr) CallReleaseFunction(release_, release_userp_);
  }

  void* base() const { return base_; }

 private:
  void* base_ = nullptr;
  NEREID_ReleaseFn_t release_ = nullptr;
  void* release_userp_ = nullptr;
};

class Instance final : public ReleaseHook {
 public:
  // `backend`, `model` and `statistics` outlive the instance.
  Instance(InstanceSpec spec, Backend* backend, TRITONBACKEND_Model* model,
           StatisticsShard* statistics);
  // Calls ModelInstanceFinalize if ModelInstanceInitialize was called, even if that failed.
  ~Instance() override;
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  Status Initialize();
  // Counts the requests until they are released. Must be called before Execute, and before other
  // release hooks that need the instance thread: the hook added first is called last.
  void TrackUntilRelease(std::span<InferRequest*> requests);
  // Passes the requests to the backend. If the backend returns an error, fails each of them.
  void Execute(std::span<InferRequest*> requests);
  // The most requests that the backend accepts in one ExecuteSerially call; 1 if it does not
  // support serial execution.
  size_t MaxSerialRequests();
  // Passes several requests to the backend, each an execution of its own. Errors as for Execute.
  void ExecuteSerially(std::span<InferRequest*> requests);
  // Passes one request to the backend's inline entry point, which must exist. [any thread]
  void ExecuteInline(InferRequest* request);
  // Memory of the backend for the inputs of a request of `size_bytes` bytes; empty if the backend
  // posts none. [any thread]
  PostedInputMemory GetPostedInput(uint64_t size_bytes);
  // The result of ModelInstanceReady; Ok if the backend does not export it. [any thread]
  Status CheckReady();

  // Number of requests that the backend has not released; may be positive after Execute has
  // returned. [any thread]
  uint64_t num_unreleased() const { return num_unreleased_.load(std::memory_order_acquire); }
  void OnRelease(InferRequest*, uint32_t) override {
    num_unreleased_.fetch_sub(1, std::memory_order_release);
  }

  const InstanceSpec& spec() const { return spec_; }
  TRITONBACKEND_Model* model() const { return model_; }
  JsonMessage& host_policy() { return host_policy_; }
  StatisticsShard& statistics() { return *statistics_; }
  void* state() const { return state_; }
  void set_state(void* state) { state_ = state; }

 private:
  using ExecuteEntry = decltype(&TRITONBACKEND_ModelInstanceExecute);
  void CallExecute(ExecuteEntry entry, std::span<InferRequest*> requests);

  const InstanceSpec spec_;
  Backend* const backend_;
  TRITONBACKEND_Model* const model_;
  StatisticsShard* const statistics_;
  const bool keeps_inputs_on_host_;  // true for CPU instances on a machine with GPUs
  JsonMessage host_policy_;
  std::atomic<uint64_t> num_unreleased_{0};
  void* state_ = nullptr;
  bool initialize_called_ = false;
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONBACKEND_ModelInstance, nereid::core::Instance);
