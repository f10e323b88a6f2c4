// A model whose instance groups change while it serves: UpdateInstances and what follows from it.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "host/core/config/config_loader.h"
#include "host/core/memory/gpu_devices.h"
#include "host/core/model/instance_specs.h"
#include "host/core/model/model.h"
#include "host/core/observe/log.h"

namespace nereid {
namespace {

// After how long it is looked again whether an instance can end: at first, and at most; between
// them each wait is twice the one before. The log says so where it cannot before kPatienceNs.
constexpr uint64_t kFirstRetryNs = 1'000'000;
constexpr uint64_t kPatienceNs = kFirstRetryNs << 13, kMaxRetryNs = kFirstRetryNs << 14;

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
  NEREID_RETURN_IF_ERROR(StartMore(&added));
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
    config_json_ = config::JsonText(changed);
    num_instances = seats_.size();
  }
  NEREID_LOG_INFO("model '", name(), "' version ", version_, ": ", num_added,
                  " instances joined and ", removed.size(), " left, ", num_instances, " serve");
  WaitForLeavers(Retire(std::move(removed)));
  return Status::Ok();
}

Status Model::StartMore(Seats* seats) {
  std::promise<bool> admission;
  const std::shared_future<bool> admitted = admission.get_future().share();
  size_t num_started = 0;
  Status first_error;
  for (Seat& seat : *seats) {
    if (seat.instance->spec().passive || !first_error.ok()) continue;
    first_error = StartRunner(&seat, next_index_ + num_started, admitted);
    if (first_error.ok()) ++num_started;
  }
  for (const Seat& seat : *seats) {
    if (seat.runner == nullptr) continue;
    Status status = seat.runner->WaitWarm();
    if (!status.ok() && first_error.ok()) first_error = std::move(status);
  }
  if (first_error.ok()) {
    // The scheduler hears of them only now: it may bind a sequence to an instance at once.
    for (size_t i = 0; i < num_started; ++i) scheduler_->AddInstance();
    next_index_ += num_started;
  }
  admission.set_value(first_error.ok());
  return first_error;
}

std::vector<size_t> Model::Retire(Seats seats) {
  std::vector<size_t> indices, without_thread;
  {
    std::lock_guard lock(seats_mutex_);
    for (Seat& seat : seats) {
      if (seat.runner == nullptr) continue;                        // ends right here
      if (Status started = seat.runner->Start(); !started.ok()) {  // its thread is what ends it
        NEREID_LOG_WARN("model '", name(), "': ", started.message());
        without_thread.push_back(seat.runner->index());
      }
      indices.push_back(seat.runner->index());
      awaited_.insert(seat.runner->index());
      leaving_.push_back(std::move(seat));
    }
  }
  for (const size_t index : indices) scheduler_->RetireInstance(index);
  for (const size_t index : without_thread) EndLeaver(index, kFirstRetryNs);
  return indices;
}

// Whoever asked for the change may look for what the instances' ends have left behind. Sequences
// may go on for long.
void Model::WaitForLeavers(const std::vector<size_t>& indices) {
  if (config_.sequence_batching.has_value()) return;
  const auto is_awaited = [this](size_t index) { return awaited_.contains(index); };
  std::unique_lock lock(seats_mutex_);
  leaver_ended_.wait_for(lock, std::chrono::nanoseconds(kPatienceNs),
                         [&] { return std::none_of(indices.begin(), indices.end(), is_awaited); });
}

void Model::OnRunnerOver(size_t index) {
  {
    std::lock_guard lock(seats_mutex_);
    const auto leaves = [index](const Seat& seat) { return seat.runner->index() == index; };
    if (std::none_of(leaving_.begin(), leaving_.end(), leaves)) return;
  }
  EndLeaver(index, kFirstRetryNs);
}

void Model::EndLeaver(size_t index, uint64_t retry_ns) {
  // Not here: a thread does not join itself.
  services_.reaper.Post([weak = weak_from_this(), index, retry_ns] {
    const std::shared_ptr<Model> self = weak.lock();
    if (self == nullptr) return;
    std::optional<Seat> seat;
    uint64_t num_held = 0;
    {
      std::lock_guard lock(self->seats_mutex_);
      const auto it =
          std::find_if(self->leaving_.begin(), self->leaving_.end(),
                       [index](const Seat& leaver) { return leaver.runner->index() == index; });
      if (it == self->leaving_.end()) return;
      num_held = it->instance->num_held();
      if (num_held == 0) {
        seat = std::move(*it);
        self->leaving_.erase(it);
      } else if (retry_ns == kPatienceNs) {
        NEREID_LOG_WARN("model '", self->name(), "' version ", self->version_, ": instance '",
                        it->instance->spec().name, "' has left, but cannot end: its backend has ",
                        "not released ", num_held, " of its requests");
      }
    }
    seat.reset();  // finalises the instance, if it can
    {
      const std::lock_guard lock(self->seats_mutex_);
      self->awaited_.erase(index);
      self->leaver_ended_.notify_all();
    }
    if (num_held == 0) return;
    // No thread waits for a backend that may never release.
    self->services_.attendant.PostAt(SteadyNowNs() + retry_ns, [weak, index, retry_ns] {
      const std::shared_ptr<Model> model = weak.lock();
      if (model != nullptr) model->EndLeaver(index, std::min(2 * retry_ns, kMaxRetryNs));
    });
  });
}

}  // namespace nereid
