#include "host/core/model/model_instances.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/thread.h"
#include "host/core/model/model.h"
#include "host/core/model/warmup.h"
#include "host/core/observe/log.h"

namespace nereid::core {
namespace {

// The environment variable overrides the backend's attribute, for tests and for backends that set
// it wrongly.
bool LoadsInParallel(const Backend& backend) {
  const char* setting = std::getenv("TRITON_PARALLEL_INSTANCE_LOADING");
  if (setting == nullptr || *setting == '\0') return backend.attributes().parallel_instance_loading;
  return std::strcmp(setting, "1") == 0;
}

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

ModelInstances::ManagedInstances ModelInstances::Make(std::vector<InstanceSpec> specs,
                                                      const ModelConfig& config) const {
  ManagedInstances instances;
  for (InstanceSpec& spec : specs) {
    ManagedInstance& managed = instances.emplace_back();
    if (spec.group < config.instance_groups.size())
      managed.group = config.instance_groups[spec.group];
    managed.instance = std::make_shared<Instance>(
        std::move(spec), model_->backend(), ToHandle(model_), &model_->statistics().AddShard());
  }
  return instances;
}

Status ModelInstances::Create() {
  const ModelConfig& config = model_->config();
  NEREID_ASSIGN_OR_RETURN(auto specs,
                          MakeInstanceSpecs(config, model_->services().options.host_policies));
  instances_ = Make(std::move(specs), config);
  return Initialize(instances_);
}

Status ModelInstances::Initialize(const ManagedInstances& instances) const {
  if (instances.size() == 1) return instances.front().instance->Initialize();
  const auto policy =
      LoadsInParallel(*model_->backend()) ? std::launch::async : std::launch::deferred;
  std::vector<std::future<Status>> outcomes;
  for (const ManagedInstance& managed : instances) {
    outcomes.push_back(std::async(policy, [instance = managed.instance.get()] {
      const AlternateSignalStack stack;
      return instance->Initialize();
    }));
  }
  Status first_error;
  for (auto& outcome : outcomes) {
    // When instances are initialised in sequence, the remaining ones are skipped after an error.
    if (!first_error.ok() && policy == std::launch::deferred) break;
    Status status = outcome.get();
    if (!status.ok() && first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}

void ModelInstances::ExecuteInline(InferRequest* request) {
  const auto keep = model_->shared_from_this();  // the request may complete before the call returns
  std::shared_ptr<Instance> instance;
  {
    // Retired instances are checked for unreleased requests only after this.
    std::lock_guard lock(mutex_);
    instance = instances_.front().instance;
    instance->TrackUntilRelease({&request, 1});
  }
  instance->ExecuteInline(request);
}

Status ModelInstances::CreateThread(ManagedInstance* managed, size_t index,
                                    std::shared_future<bool> may_serve) {
  Instance* instance = managed->instance.get();
  const InstanceSpec& spec = instance->spec();
  std::unique_ptr<RateLimiter::RegisteredInstance> rate_limited;
  if (RateLimiter* limiter = model_->services().rate_limiter.get(); limiter != nullptr) {
    NEREID_ASSIGN_OR_RETURN(rate_limited, limiter->Register(managed->group, spec.device_id));
  }
  // A DEVICE_BLOCKING backend runs one execution at a time on each GPU. As in Triton, this does not
  // apply to sequence models.
  std::shared_ptr<std::mutex> device_mutex;
  if (model_->backend()->execution_policy() == TRITONBACKEND_EXECUTION_DEVICE_BLOCKING &&
      spec.kind == TRITONSERVER_INSTANCEGROUPKIND_GPU && !model_->config().sequence_batching) {
    device_mutex = device_mutexes_[spec.device_id];
    if (device_mutex == nullptr)
      device_mutex = device_mutexes_[spec.device_id] = std::make_shared<std::mutex>();
  }
  std::function<Status()> warm_up;
  if (!model_->config().warmups.empty()) {
    warm_up = [model = model_, instance] {
      return RunWarmups(model->config(), model->directory(), model->services(), model, instance);
    };
  }
  managed->thread = std::make_unique<InstanceThread>(
      instance, index, scheduler_, std::move(rate_limited), std::move(device_mutex),
      std::move(warm_up), std::move(may_serve), [this, index] { OnThreadEnding(index); });
  if (!managed->thread->HasStartupWork()) return Status::Ok();
  Status started = managed->thread->Start();
  if (!started.ok()) managed->thread.reset();
  return started;
}

size_t ModelInstances::num_active() const {
  return static_cast<size_t>(std::count_if(
      instances_.begin(), instances_.end(),
      [](const ManagedInstance& managed) { return !managed.instance->spec().passive; }));
}

Status ModelInstances::Bind(Scheduler* scheduler) {
  scheduler_ = scheduler;
  for (ManagedInstance& managed : instances_) {
    if (managed.instance->spec().passive) continue;
    NEREID_RETURN_IF_ERROR(CreateThread(&managed, next_index_++, {}));
  }
  Status first_error;
  for (const ManagedInstance& managed : instances_) {
    if (managed.thread == nullptr) continue;
    Status status = managed.thread->WaitForWarmup();
    if (!status.ok() && first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}

Status ModelInstances::StartThreads() {
  std::lock_guard lock(mutex_);
  Status first_error;
  bool any_runs = false;
  for (const ManagedInstance& managed : instances_) {
    if (managed.thread == nullptr) continue;
    Status started = managed.thread->Start();
    any_runs |= started.ok();
    if (!started.ok() && first_error.ok()) first_error = std::move(started);
  }
  if (first_error.ok()) {
    threads_started_.store(true, std::memory_order_release);
  } else if (any_runs && !model_->config().sequence_batching) {
    // The next request tries again. A sequence would wait for the one instance that it is bound to.
    NEREID_LOG_WARN("model '", model_->name(), "': ", first_error.message());
    return Status::Ok();
  }
  return first_error;
}

void ModelInstances::Clear() {
  ManagedInstances instances, retiring;
  {
    std::lock_guard lock(mutex_);  // the ending threads still search these lists
    instances.swap(instances_);
    retiring.swap(retiring_);
  }
  for (ManagedInstances* all : {&instances, &retiring}) {
    for (ManagedInstance& managed : *all) managed.thread.reset();
    all->clear();
  }
}

std::shared_ptr<Instance> ModelInstances::Single() const {
  std::lock_guard lock(mutex_);
  return instances_.size() == 1 ? instances_.front().instance : nullptr;
}

Status ModelInstances::CheckReady() const {
  std::vector<std::shared_ptr<Instance>> instances;
  {
    std::lock_guard lock(mutex_);
    for (const ManagedInstance& managed : instances_) instances.push_back(managed.instance);
  }
  for (const auto& instance : instances) NEREID_RETURN_IF_ERROR(instance->CheckReady());
  return Status::Ok();
}

Result<std::vector<size_t>> ModelInstances::Update(const ModelConfig& config) {
  NEREID_ASSIGN_OR_RETURN(auto requested,
                          MakeInstanceSpecs(config, model_->services().options.host_policies));
  std::vector<Instance*> reused;
  const auto reuse = [&](const InstanceSpec& spec) {
    const InstanceGroup& group = config.instance_groups.at(spec.group);
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
  ManagedInstances added = Make(std::move(requested), config);
  NEREID_RETURN_IF_ERROR(Initialize(added));
  NEREID_RETURN_IF_ERROR(StartAdded(&added));
  ManagedInstances removed;
  size_t num_instances = 0;
  const size_t num_added = added.size();
  {
    std::lock_guard lock(mutex_);
    const auto middle = std::stable_partition(
        instances_.begin(), instances_.end(), [&](const ManagedInstance& managed) {
          return std::find(reused.begin(), reused.end(), managed.instance.get()) != reused.end();
        });
    std::move(middle, instances_.end(), std::back_inserter(removed));
    instances_.erase(middle, instances_.end());
    std::move(added.begin(), added.end(), std::back_inserter(instances_));
    num_instances = instances_.size();
  }
  NEREID_LOG_INFO("model '", model_->name(), "' version ", model_->version(), ": ", num_added,
                  " instances added, ", removed.size(), " removed, ", num_instances, " in service");
  return Retire(std::move(removed));
}

Status ModelInstances::StartAdded(ManagedInstances* instances) {
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

std::vector<size_t> ModelInstances::Retire(ManagedInstances instances) {
  std::vector<size_t> indices, without_thread;
  {
    std::lock_guard lock(mutex_);
    for (ManagedInstance& managed : instances) {
      if (managed.thread == nullptr) continue;  // passive: destroyed by this function
      // The end of its thread finalizes the instance, so it needs a thread.
      if (Status started = managed.thread->Start(); !started.ok()) {
        NEREID_LOG_WARN("model '", model_->name(), "': ", started.message());
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
void ModelInstances::WaitForRetired(const std::vector<size_t>& indices) {
  if (model_->config().sequence_batching.has_value()) return;
  const auto is_unchecked = [this](size_t index) { return unchecked_indices_.contains(index); };
  std::unique_lock lock(mutex_);
  retired_ended_.wait_for(lock, std::chrono::nanoseconds(kWarnAfterNs), [&] {
    return std::none_of(indices.begin(), indices.end(), is_unchecked);
  });
}

void ModelInstances::OnThreadEnding(size_t index) {
  {
    std::lock_guard lock(mutex_);
    const auto is_retiring = [index](const ManagedInstance& managed) {
      return managed.thread->index() == index;
    };
    if (std::none_of(retiring_.begin(), retiring_.end(), is_retiring)) return;
  }
  FinalizeRetired(index, kFirstRetryNs);
}

void ModelInstances::FinalizeRetired(size_t index, uint64_t retry_ns) {
  // Runs on a reaper thread, because a thread cannot join itself. The model owns this object.
  model_->services().reaper.Post([this, weak = model_->weak_from_this(), index, retry_ns] {
    const std::shared_ptr<Model> model = weak.lock();
    if (model == nullptr) return;
    std::optional<ManagedInstance> managed;
    uint64_t num_unreleased = 0;
    {
      std::lock_guard lock(mutex_);
      const auto it = std::find_if(
          retiring_.begin(), retiring_.end(),
          [index](const ManagedInstance& retired) { return retired.thread->index() == index; });
      if (it == retiring_.end()) return;
      num_unreleased = it->instance->num_unreleased();
      if (num_unreleased == 0) {
        managed = std::move(*it);
        retiring_.erase(it);
      } else if (retry_ns == kWarnAfterNs) {
        NEREID_LOG_WARN("model '", model->name(), "' version ", model->version(), ": instance '",
                        it->instance->spec().name,
                        "' was removed, but cannot be finalized: its backend has not released ",
                        num_unreleased, " of its requests");
      }
    }
    managed.reset();  // finalizes the instance unless requests are unreleased
    {
      const std::lock_guard lock(mutex_);
      unchecked_indices_.erase(index);
      retired_ended_.notify_all();
    }
    if (num_unreleased == 0) return;
    // Retries later: no thread waits for a backend that may never release its requests.
    const uint64_t next_ns = std::min(2 * retry_ns, kMaxRetryNs);
    model->services().timeout_thread.PostAt(SteadyNowNs() + retry_ns, [this, weak, index, next_ns] {
      const std::shared_ptr<Model> owner = weak.lock();
      if (owner != nullptr) FinalizeRetired(index, next_ns);
    });
  });
}

}  // namespace nereid::core
