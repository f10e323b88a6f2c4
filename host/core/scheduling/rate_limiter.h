// The rate limiter (--rate-limit=execution_count). Instances of all models share resources. They
// are scheduled by their number of executions, weighted by their priority. Without rate limiting,
// this class is not used. One per server. [any thread]
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/core/config/model_config.h"
#include "nereid/status.h"

namespace nereid::core {

// --rate-limit-resource=<name>:<count>[:<device>]
struct ResourceLimit {
  std::string name;
  uint64_t count = 0;
  int device = -1;  // -1: every device
};

// If any limits are configured, a resource without a limit has a count of 0. Of several matching
// limits the largest applies. Limits for any device also match global resources.
class RateLimiter {
 public:
  class RegisteredInstance;

  explicit RateLimiter(std::vector<ResourceLimit> limits) : limits_(std::move(limits)) {}

  // Registers an instance on `device`. INVALID_ARG if it requires more of a resource than its
  // limit. The limiter must outlive the result.
  Result<std::unique_ptr<RegisteredInstance>> Register(const InstanceGroup& group, int device);
  // Number of instances that wait in Acquire.
  size_t num_waiting();

 private:
  // A resource that is not global exists once per device.
  static constexpr int kGlobal = -1;
  using Key = std::pair<std::string, int>;
  struct Resource {
    uint64_t used = 0;
    // By required count. Without a limit, the largest count is the resource's total.
    std::multimap<uint64_t, const RegisteredInstance*> requested;
  };

  // The largest matching limit; 0 if only other resources have limits; nullopt if there are no
  // limits.
  std::optional<uint64_t> LimitOf(const Key& key) const;
  uint64_t AvailableCount(const Key& key, const Resource& resource) const;
  // The functions below require mutex_.
  // INVALID_ARG if a registered instance, or `required` itself, uses `key` both as a global and as
  // a device-specific resource.
  Status CheckKind(const Key& key, const std::map<Key, uint64_t>& required) const;
  bool IsNext(const RegisteredInstance& member) const;
  bool HasResources(const RegisteredInstance& member) const;

  const std::vector<ResourceLimit> limits_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<Key, Resource> resources_;
  std::list<const RegisteredInstance*> waiting_;  // ordered by weighted executions, then by arrival
};

// A registered instance. [its instance thread]
class RateLimiter::RegisteredInstance {
 public:
  ~RegisteredInstance();
  RegisteredInstance(const RegisteredInstance&) = delete;
  RegisteredInstance& operator=(const RegisteredInstance&) = delete;

  // Waits until it is the instance's turn and its resources are available, then takes the
  // resources.
  void Acquire();
  // Returns the resources. Called once per Acquire.
  void Release();
  // Returns the resources and acquires them again. The instance is queued before other instances
  // can take the resources.
  void Reacquire();
  // Records an execution, which schedules the instance later from now on.
  void CountExecution() { ++num_executions_; }

 private:
  friend class RateLimiter;
  RegisteredInstance(RateLimiter* limiter, uint64_t weight) : limiter_(limiter), weight_(weight) {}
  uint64_t weighted_executions() const { return num_executions_ * weight_; }
  // Both functions require the limiter's mutex.
  void WaitForTurn(std::unique_lock<std::mutex>& lock);
  void ReturnResources();

  RateLimiter* const limiter_;
  const uint64_t weight_;
  std::map<Key, uint64_t> required_;
  // Other threads read it while this instance waits; it does not change then. Triton counts an
  // instance's initialization and its warm-up, so that priorities also affect the first executions.
  uint64_t num_executions_ = 2;
};

}  // namespace nereid::core
