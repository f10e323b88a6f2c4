// Changes the instance groups of a model while it serves: Model::UpdateInstances and its helpers.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "host/core/config/config_loader.h"
#include "host/core/memory/gpus.h"
#include "host/core/model/instance_specs.h"
#include "host/core/model/model.h"
#include "host/core/observe/log.h"

namespace nereid::core {
namespace {

// Interval between checks whether a retired instance can be finalized. It starts at kFirstRetryNs
// and doubles up to kMaxRetryNs. A warning is logged once the interval reaches kWarnAfterNs.
constexpr uint64_t kFirstRetryNs = 1'000'000;
constexpr uint64_t kWarnAfterNs = kFirstRetryNs << 13, kMaxRetryNs = kFirstRetryNs << 14;

bool IsSame(const InstanceSpec& a, const InstanceGroup& a_group, const InstanceSpec& b,
            const InstanceGroup& b_group) {
  return a.name == b.name && a.kind == b.kind && a.device_id == b.device_id &&
         a.passive == b.passive && a.profiles == b.profiles &&
         a.secondary_devices == b.secondary_devices && a.host_policy_name == b.host_policy_name &&
         a_group.rate_limiter_resources == b_group.rate_limiter_resources &&
         a_group.rate_limiter_priority == b_group.rate_limiter_priority;
}

}  // namespace

Status Model::UpdateInstances(const ModelConfig& config) {
  NEREID_ASSIGN_OR_RETURN(const ModelConfig prepared,
                          config::PrepareInstances(config, InstanceDefaults()));
  NEREID_ASSIGN_OR_RETURN(const ModelConfig changed, config::WithInstanceGroups(config_, prepared));
  NEREID_ASSIGN_OR_RETURN(auto requested,
                          MakeInstanceSpecs(changed, services_.options.host_policies));
  std::vector<Instance*> reused;
  const auto reuse = [&](const InstanceSpec& spec) {
    const InstanceGroup& group = changed.instance_groups.at(spec.group);
    for (const ManagedInstance& managed : instances_) {
      Instance* instance = managed.instance.get();
      if (std::find(reused.begin(), reused.end(), instance) != reused.end()) continue;
      if (!IsSame(instance->spec(), managed.group, spec, group)) continue;
      reused.push_back(instance);
      return true;
    }
    return false;
  };
  std::erase_if(requested, reuse);
  NEREID_ASSIGN_OR_RETURN(ManagedInstances added, MakeInstances(std::move(requested), changed));
  NEREID_RETURN_IF_ERROR(InitializeInstances(added));
  NEREID_RETURN_IF_ERROR(StartAdded(&added));
  ManagedInstances removed;
  size_t num_instances = 0;
  const size_t num_added = added.size();
  {
    std::lock_guard lock(instances_mutex_);
    const auto middle = std::stable_partition(
        instances_.begin(), instances_.end(), [&](const ManagedInstance& managed) {
          return std::find(reused.begin(), reused.end(), managed.instance.get()) != reused.end();
        });
    std::move(middle, instances_.end(), std::back_inserter(removed));
    instances_.erase(middle, instances_.end());
    std::move(added.begin(), added.end(), std::back_inserter(instances_));
    config_json_ = config::JsonText(changed);
    num_instances = instances_.size();
  }
  NEREID_LOG_INFO("model '", name(), "' version ", version_, ": ", num_added, " instances added, ",
                  removed.size(), " removed, ", num_instances, " in service");
  WaitForRetired(Retire(std::move(removed)));
  return Status::Ok();
}

Status Model::StartAdded(ManagedInstances* instances) {
  std::promise<bool> admission;
  const std::shared_future<bool> may_serve = admission.get_future().share();
  size_t num_started = 0;
  Status first_error;
  for (ManagedInstance& managed : *instances) {
    if (managed.instance->spec().passive || !first_error.ok()) continue;
    first_error = CreateThread(&managed, next_index_ + num_started, may_serve);
    if (first_error.ok()) ++num_started;
  }
  for (const ManagedInstance& managed : *instances) {
    if (managed.thread == nullptr) continue;
    Status status = managed.thread->WaitForWarmup();
    if (!status.ok() && first_error.ok()) first_error = std::move(status);
  }
  if (first_error.ok()) {
    // The instances are added to the scheduler only now, because it may bind a sequence to an
    // instance at once.
    for (size_t i = 0; i < num_started; ++i) scheduler_->AddInstance();
    next_index_ += num_started;
  }
  admission.set_value(first_error.ok());
  return first_error;
}

std::vector<size_t> Model::Retire(ManagedInstances instances) {
  std::vector<size_t> indices, without_thread;
  {
    std::lock_guard lock(instances_mutex_);
    for (ManagedInstance& managed : instances) {
      if (managed.thread == nullptr) continue;  // passive: destroyed by this function
      // The end of its thread finalizes the instance, so it needs a thread.
      if (Status started = managed.thread->Start(); !started.ok()) {
        NEREID_LOG_WARN("model '", name(), "': ", started.message());
        without_thread.push_back(managed.thread->index());
      }
      indices.push_back(managed.thread->index());
      unchecked_indices_.insert(managed.thread->index());
      retiring_.push_back(std::move(managed));
    }
  }
  for (const size_t index : indices) scheduler_->RetireInstance(index);
  for (const size_t index : without_thread) FinalizeRetired(index, kFirstRetryNs);
  return indices;
}

// The caller of the update may rely on the retired instances being finalized. Sequences may
// continue for long, so the update of a sequence model does not wait.
void Model::WaitForRetired(const std::vector<size_t>& indices) {
  if (config_.sequence_batching.has_value()) return;
  const auto is_unchecked = [this](size_t index) { return unchecked_indices_.contains(index); };
  std::unique_lock lock(instances_mutex_);
  retired_ended_.wait_for(lock, std::chrono::nanoseconds(kWarnAfterNs), [&] {
    return std::none_of(indices.begin(), indices.end(), is_unchecked);
  });
}

void Model::OnThreadEnding(size_t index) {
  {
    std::lock_guard lock(instances_mutex_);
    const auto is_retiring = [index](const ManagedInstance& managed) {
      return managed.thread->index() == index;
    };
    if (std::none_of(retiring_.begin(), retiring_.end(), is_retiring)) return;
  }
  FinalizeRetired(index, kFirstRetryNs);
}

void Model::FinalizeRetired(size_t index, uint64_t retry_ns) {
  // Runs on a reaper thread, because a thread cannot join itself.
  services_.reaper.Post([weak = weak_from_this(), index, retry_ns] {
    const std::shared_ptr<Model> self = weak.lock();
    if (self == nullptr) return;
    std::optional<ManagedInstance> managed;
    uint64_t num_unreleased = 0;
    {
      std::lock_guard lock(self->instances_mutex_);
      const auto it = std::find_if(
          self->retiring_.begin(), self->retiring_.end(),
          [index](const ManagedInstance& retired) { return retired.thread->index() == index; });
      if (it == self->retiring_.end()) return;
      num_unreleased = it->instance->num_unreleased();
      if (num_unreleased == 0) {
        managed = std::move(*it);
        self->retiring_.erase(it);
      } else if (retry_ns == kWarnAfterNs) {
        NEREID_LOG_WARN("model '", self->name(), "' version ", self->version_, ": instance '",
                        it->instance->spec().name,
                        "' was removed, but cannot be finalized: its backend has not released ",
                        num_unreleased, " of its requests");
      }
    }
    managed.reset();  // finalizes the instance unless requests are unreleased
    {
      const std::lock_guard lock(self->instances_mutex_);
      self->unchecked_indices_.erase(index);
      self->retired_ended_.notify_all();
    }
    if (num_unreleased == 0) return;
    // Retries later: no thread waits for a backend that may never release its requests.
    self->services_.timeout_thread.PostAt(SteadyNowNs() + retry_ns, [weak, index, retry_ns] {
      const std::shared_ptr<Model> model = weak.lock();
      if (model != nullptr) model->FinalizeRetired(index, std::min(2 * retry_ns, kMaxRetryNs));
    });
  });
}

}  // namespace nereid::core
