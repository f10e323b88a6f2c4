// One instance of a model: what the backend sees as TRITONBACKEND_ModelInstance, and the one place
// where its Execute is called. Knows no queue. [its instance thread; load thread before, reaper
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
#include "host/core/handle/message.h"
#include "host/core/observe/statistics.h"
#include "host/core/request/give_back.h"
#include "host/core/request/infer_request.h"
#include "nereid/status.h"

namespace nereid {

struct InstanceSpec {
  std::string name;
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  int32_t device_id = 0;
  bool passive = false;
  std::vector<std::string> profiles;
  std::vector<std::pair<std::string, int64_t>> secondary_devices;  // kind, id
  std::string host_policy_name;
  std::string host_policy_json;
  HostBinding binding;  // of its thread
  size_t group = 0;     // index into the configuration's instance groups
};

// Memory that a backend offered, given back with this object.
class InputLoan {
 public:
  InputLoan() = default;
  InputLoan(void* base, NEREID_GiveBackFn_t give_back, void* lender_userp)
      : base_(base), give_back_(give_back), lender_userp_(lender_userp) {}
  InputLoan(InputLoan&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        give_back_(other.give_back_),
        lender_userp_(other.lender_userp_) {}
  InputLoan& operator=(InputLoan&&) = delete;
  ~InputLoan() {
    if (base_ != nullptr) GiveBack(give_back_, lender_userp_);
  }

  void* base() const { return base_; }

 private:
  void* base_ = nullptr;
  NEREID_GiveBackFn_t give_back_ = nullptr;
  void* lender_userp_ = nullptr;
};

class Instance final : public ReleaseHook {
 public:
  // `backend`, `model` and `statistics` outlive the instance.
  Instance(InstanceSpec spec, Backend* backend, TRITONBACKEND_Model* model,
           StatisticsShard* statistics);
  // Calls ModelInstanceFinalize if Initialize was called, whether it succeeded or not.
  ~Instance() override;
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  Status Initialize();
  // Counts the requests until they are released. Before Execute, and before hooks of others that
  // need the instance's thread: the oldest hook is told last.
  void Hold(std::span<InferRequest*> requests);
  // Lends the requests to the backend, or answers each of them when the backend refuses.
  void Execute(std::span<InferRequest*> requests);
  // How many requests, each an execution of its own, the backend takes at once; 1 where it does not
  // say.
  size_t MostInTurn();
  // Lends requests that it takes at once, like Execute.
  void ExecuteInTurn(std::span<InferRequest*> requests);
  // Likewise, by the backend's inline entry point, which it must have. [any thread]
  void ExecuteInline(InferRequest* request);
  // Memory of the backend's for inputs of a request; nothing where it offers none. [any thread]
  InputLoan OfferInput(uint64_t size_bytes);
  // The backend's own opinion; Ok when it has none. [any thread]
  Status CheckReady();

  // Requests that its backend has, also after Execute has returned. [any thread]
  uint64_t num_held() const { return num_held_.load(std::memory_order_acquire); }
  void OnRelease(InferRequest*, uint32_t) override {
    num_held_.fetch_sub(1, std::memory_order_release);
  }

  const InstanceSpec& spec() const { return spec_; }
  TRITONBACKEND_Model* model() const { return model_; }
  Message& host_policy() { return host_policy_; }
  StatisticsShard& statistics() { return *statistics_; }
  void* state() const { return state_; }
  void set_state(void* state) { state_ = state; }

 private:
  using ExecuteEntry = decltype(&TRITONBACKEND_ModelInstanceExecute);
  void Call(ExecuteEntry entry, std::span<InferRequest*> requests);

  const InstanceSpec spec_;
  Backend* const backend_;
  TRITONBACKEND_Model* const model_;
  StatisticsShard* const statistics_;
  const bool on_host_;  // of the CPU, beside GPUs
  Message host_policy_;
  std::atomic<uint64_t> num_held_{0};
  void* state_ = nullptr;
  bool initialize_called_ = false;
};

}  // namespace nereid

NEREID_HANDLE(TRITONBACKEND_ModelInstance, nereid::Instance);
