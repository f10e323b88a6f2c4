// A model whose instance groups change while it serves: UpdateInstances and what follows from it.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "config/config_loader.h"
#include "memory/gpu_devices.h"
#include "model/instance_specs.h"
#include "model/model.h"
#include "observe/log.h"

namespace nereid {
namespace {

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
  NEREID_ASSIGN_OR_RETURN(
      const ModelConfig prepared,
      config::PrepareInstances(config, {GpuDevices(), backend_->attributes().preferred_groups}));
  NEREID_ASSIGN_OR_RETURN(const ModelConfig changed, config::WithInstanceGroups(config_, prepared));
  NEREID_ASSIGN_OR_RETURN(auto wanted, MakeInstanceSpecs(changed, services_.options.host_policies));
  std::vector<Instance*> kept;
  const auto take = [&](const InstanceSpec& spec) {
    const InstanceGroup& group = changed.instance_groups.at(spec.group);
    for (const Seat& seat : seats_) {
      Instance* one = seat.instance.get();
      if (std::find(kept.begin(), kept.end(), one) != kept.end()) continue;
      if (!IsSame(one->spec(), seat.group, spec, group)) continue;
      kept.push_back(one);
      return true;
    }
    return false;
  };
  std::erase_if(wanted, take);
  NEREID_ASSIGN_OR_RETURN(Seats added, MakeSeats(std::move(wanted), changed));
  NEREID_RETURN_IF_ERROR(InitializeInstances(added));
  Status started = StartMore(&added);
  if (!started.ok()) {
    Retire(std::move(added));
    return started;
  }
  Seats removed;
  size_t num_instances = 0;
  const size_t num_added = added.size();
  {
    std::lock_guard lock(seats_mutex_);
    const auto middle = std::stable_partition(seats_.begin(), seats_.end(), [&](const Seat& seat) {
      return std::find(kept.begin(), kept.end(), seat.instance.get()) != kept.end();
    });
    std::move(middle, seats_.end(), std::back_inserter(removed));
    seats_.erase(middle, seats_.end());
    std::move(added.begin(), added.end(), std::back_inserter(seats_));
    config_json_ = changed.json;
    num_instances = seats_.size();
  }
  NEREID_LOG_INFO("model '", name(), "' version ", version_, ": ", num_added,
                  " instances joined and ", removed.size(), " left, ", num_instances, " serve");
  Retire(std::move(removed));
  return Status::Ok();
}

Status Model::StartMore(Seats* seats) {
  for (Seat& seat : *seats) {
    if (seat.instance->spec().passive) continue;
    NEREID_RETURN_IF_ERROR(StartRunner(&seat, true));
  }
  Status first_error;
  for (const Seat& seat : *seats) {
    if (seat.runner == nullptr) continue;
    Status status = seat.runner->WaitWarm();
    if (!status.ok() && first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}

void Model::Retire(Seats seats) {
  std::vector<size_t> indices;
  {
    std::lock_guard lock(seats_mutex_);
    for (Seat& seat : seats) {
      if (seat.runner == nullptr) continue;  // ends right here
      indices.push_back(seat.runner->index());
      leaving_.push_back(std::move(seat));
    }
  }
  for (const size_t index : indices) scheduler_->RetireInstance(index);
}

void Model::OnRunnerOver(size_t index) {
  {
    std::lock_guard lock(seats_mutex_);
    const auto leaves = [index](const Seat& seat) { return seat.runner->index() == index; };
    if (std::none_of(leaving_.begin(), leaving_.end(), leaves)) return;
  }
  // Not here: a thread does not join itself, and the backend may still have requests of it.
  services_.reaper.Post([weak = weak_from_this(), index] {
    const std::shared_ptr<Model> self = weak.lock();
    if (self == nullptr) return;
    Seat seat;
    {
      std::lock_guard lock(self->seats_mutex_);
      for (auto it = self->leaving_.begin(); it != self->leaving_.end(); ++it) {
        if (it->runner->index() != index) continue;
        seat = std::move(*it);
        self->leaving_.erase(it);
        break;
      }
    }
    while (seat.instance != nullptr && seat.instance->num_held() > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    seat.runner.reset();
    seat.instance.reset();
  });
}

}  // namespace nereid
