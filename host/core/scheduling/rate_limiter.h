// --rate-limit=execution_count: instances of all models share resources, and each gets its turn by
// how often it has run, weighted by its priority. Without the limiter no instance meets it. One a
// server. [any thread]
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

namespace nereid {

// --rate-limit-resource=<name>:<count>[:<device>]
struct ResourceLimit {
  std::string name;
  uint64_t count = 0;
  int device = -1;  // -1: each device
};

// Where limits are given, what they do not name is not there. Of several that fit the largest
// counts; those of any device fit a global resource.
class RateLimiter {
 public:
  class Member;

  explicit RateLimiter(std::vector<ResourceLimit> limits) : limits_(std::move(limits)) {}

  // An instance on `device`. INVALID_ARG when it asks for more of a resource than there is. The
  // limiter outlives its members.
  Result<std::unique_ptr<Member>> Join(const InstanceGroup& group, int device);
  // Members inside Acquire.
  size_t num_waiting();

 private:
  // A resource that is not global exists once on each device.
  static constexpr int kGlobal = -1;
  using Key = std::pair<std::string, int>;
  struct Resource {
    uint64_t used = 0;
    std::multimap<uint64_t, const Member*> wanted;  // without a limit: the largest wish counts
  };

  // The largest that fits; 0 where other limits are given, none where there is no limit at all.
  std::optional<uint64_t> LimitOf(const Key& key) const;
  uint64_t CountOf(const Key& key, const Resource& resource) const;
  // All of what follows requires mutex_.
  // INVALID_ARG when an instance, or the one with `needs`, has it as a resource of the other kind.
  Status CheckKind(const Key& key, const std::map<Key, uint64_t>& needs) const;
  bool IsNext(const Member& member) const;
  bool Fits(const Member& member) const;

  const std::vector<ResourceLimit> limits_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<Key, Resource> resources_;
  std::list<const Member*> waiting_;  // by turn, then by arrival
};

// One instance. [its thread]
class RateLimiter::Member {
 public:
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // Waits for its turn and takes its resources.
  void Acquire();
  // Gives them back. Once for each Acquire.
  void Release();
  // Gives them back and acquires them anew: in line for them before anybody else gets them.
  void AcquireAgain();
  // It used what it has acquired: its turn comes later from now on.
  void CountRun() { ++num_runs_; }

 private:
  friend class RateLimiter;
  Member(RateLimiter* limiter, uint64_t weight) : limiter_(limiter), weight_(weight) {}
  uint64_t turn() const { return num_runs_ * weight_; }
  // Both require the limiter's mutex.
  void WaitForTurn(std::unique_lock<std::mutex>& lock);
  void GiveBack();

  RateLimiter* const limiter_;
  const uint64_t weight_;
  std::map<Key, uint64_t> needs_;
  // Others read it while this waits, when it does not change. Triton counts an instance's
  // initialization and its warm-up, so that the first turns differ by priority, too.
  uint64_t num_runs_ = 2;
};

}  // namespace nereid
