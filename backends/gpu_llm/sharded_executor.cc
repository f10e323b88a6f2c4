// ShardedExecutor: runs every call on each rank's thread.
#include "backends/gpu_llm/sharded_executor.h"

#include <algorithm>
#include <utility>

#include "backends/gpu_llm/step_warm_up.h"

namespace nereid::gpu {
namespace {

// Whether an accepted draft of a tree is not yet at its place in the sequence.
bool MovesDrafts(const llm::StepResult& result) {
  for (const std::vector<int32_t>& accepted : result.accepted_drafts) {
    for (size_t n = 0; n < accepted.size(); ++n)
      if (accepted[n] != static_cast<int32_t>(n)) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<ShardedExecutor>> ShardedExecutor::Create(const llm::DecoderModel& model,
                                                                 const GpuExecutorOptions& options,
                                                                 std::span<const int32_t> devices) {
  const auto count = static_cast<int32_t>(devices.size());
  NEREID_RETURN_IF_ERROR(Sharding::Of(model.spec, 0, count).status());
  NEREID_ASSIGN_OR_RETURN(std::unique_ptr<PeerGroup> group, PeerGroup::Create(devices));
  std::unique_ptr<ShardedExecutor> executor(new ShardedExecutor(std::move(group)));
  // Steps of a warm-up would be in the profile.
  if (options.profile_steps == 0) executor->most_warm_up_time_ = options.most_warm_up_time;
  NEREID_RETURN_IF_ERROR(executor->threads_.Run([&](int32_t rank) -> Status {
    GpuExecutorOptions own = options;
    own.device = devices[rank];
    own.rank = rank;
    own.group = executor->group_.get();
    own.tiers.host_bytes /= count;
    own.tiers.file_bytes /= count;
    if (rank > 0 && !own.tiers.file_path.empty()) own.tiers.file_path += StrCat(".", rank);
    if (rank > 0) {
      own.on_profile = [](const std::string&) {};  // rank 0 reports the profile
      own.companion_memory = {};                   // a drafter runs on rank 0's GPU
    }
    NEREID_ASSIGN_OR_RETURN(executor->ranks_[rank], GpuExecutor::Create(model, own));
    return {};
  }));
  std::vector<llm::BlockStorage*> storages;
  for (const auto& rank : executor->ranks_) {
    if (rank->block_storage() != nullptr) storages.push_back(rank->block_storage());
  }
  if (static_cast<int32_t>(storages.size()) == count) executor->storage_.emplace(storages);
  return executor;
}

// Drains all GPUs first, so that no GPU frees memory that another one may still write.
ShardedExecutor::~ShardedExecutor() {
  (void)threads_.Run([&](int32_t rank) -> Status {
    if (ranks_[rank] != nullptr) ranks_[rank]->Drain();
    return {};
  });
}

llm::ExecutorMemory ShardedExecutor::memory() const {
  llm::ExecutorMemory sum;
  sum.gpu_bytes = group_->memory_bytes();
  for (const auto& rank : ranks_) {
    const llm::ExecutorMemory memory = rank->memory();
    sum.cpu_bytes += memory.cpu_bytes;
    sum.gpu_bytes += memory.gpu_bytes;
    sum.pinned_bytes += memory.pinned_bytes;
  }
  return sum;
}

Status ShardedExecutor::CaptureHiddenStates(std::span<const int32_t> layers,
                                            llm::HiddenStatePlace place) {
  return threads_.Run(
      [&](int32_t rank) { return ranks_[rank]->CaptureHiddenStates(layers, place); });
}

Status ShardedExecutor::PrepareSteps() {
  for (const auto& rank : ranks_) rank->RecordAtOnce(true);
  const Status status = WarmUpSteps(*this, most_warm_up_time_);
  for (const auto& rank : ranks_) rank->RecordAtOnce(false);
  return status;
}

Status ShardedExecutor::PrepareDraftSteps(const llm::DraftStepForm& form) {
  for (const auto& rank : ranks_) rank->RecordAtOnce(true);
  Result<std::vector<llm::StepCostPoint>> costs = WarmUpDraftSteps(*this, form);
  for (const auto& rank : ranks_) rank->RecordAtOnce(false);
  if (costs.ok()) measured_costs_ = std::move(*costs);
  return costs.status();
}

// An adapter that one GPU does not have is of no use to the others.
Result<std::vector<llm::FailedAdapter>> ShardedExecutor::LoadAdapters(
    std::span<const std::shared_ptr<const llm::LoraAdapter>> adapters) {
  std::vector<std::vector<llm::FailedAdapter>> of_ranks(ranks_.size());
  NEREID_RETURN_IF_ERROR(threads_.Run([&](int32_t rank) -> Status {
    NEREID_ASSIGN_OR_RETURN(of_ranks[rank], ranks_[rank]->CopyAdapters(adapters));
    return {};
  }));
  std::vector<llm::FailedAdapter> failed;
  for (std::vector<llm::FailedAdapter>& own : of_ranks) {
    for (llm::FailedAdapter& each : own) {
      const auto is_same = [&](const auto& other) { return other.adapter == each.adapter; };
      if (std::none_of(failed.begin(), failed.end(), is_same)) failed.push_back(std::move(each));
    }
  }
  if (failed.empty()) return failed;
  for (const auto& rank : ranks_) rank->ForgetAdapters(failed);
  return failed;
}

Status ShardedExecutor::Submit(const llm::StepBatch& batch) {
  return threads_.Run([&](int32_t rank) { return ranks_[rank]->Submit(batch); });
}

Result<llm::StepResult> ShardedExecutor::Collect() {
  llm::StepResult result;
  NEREID_RETURN_IF_ERROR(threads_.Run([&](int32_t rank) -> Status {
    NEREID_ASSIGN_OR_RETURN(llm::StepResult own, ranks_[rank]->Collect());
    if (rank == 0) result = std::move(own);
    return {};
  }));
  if (!MovesDrafts(result)) return result;
  NEREID_RETURN_IF_ERROR(threads_.Run(
      [&](int32_t rank) { return rank == 0 ? Status() : ranks_[rank]->FollowAccepted(result); }));
  return result;
}

}  // namespace nereid::gpu
