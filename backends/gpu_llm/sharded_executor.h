// One model on several GPUs: one executor for each GPU. All of them run every step with their
// shards of the weights, each on its own thread. Rank 0 samples the tokens. [engine thread, which
// is also rank 0's thread]
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/gpu_llm/comm/peer_group.h"
#include "backends/gpu_llm/comm/rank_threads.h"
#include "backends/gpu_llm/gpu_executor.h"
#include "backends/gpu_llm/sharded_block_storage.h"

namespace nereid::gpu {

class ShardedExecutor : public llm::Executor {
 public:
  // As GpuExecutor::Create(); options.device is ignored. UNSUPPORTED also if the model cannot be
  // divided among so many GPUs.
  static Result<std::unique_ptr<ShardedExecutor>> Create(const llm::DecoderModel& model,
                                                         const GpuExecutorOptions& options,
                                                         std::span<const int32_t> devices);
  ~ShardedExecutor() override;

  const llm::ExecutorLimits& limits() const override { return ranks_[0]->limits(); }
  llm::ExecutorFeatures features() const override { return ranks_[0]->features(); }
  llm::ExecutorMemory memory() const override;
  llm::TypicalCosts typical_step_costs() const override {
    if (!measured_costs_.empty()) {
      return {measured_costs_, true, ranks_[0]->ContextTokenSeconds(measured_costs_.front().cost)};
    }
    return ranks_[0]->typical_step_costs();
  }
  llm::ExecutorCounts counts() const override { return ranks_[0]->counts(); }
  Result<int64_t> AdapterBytes(const llm::LoraAdapter& adapter) const override {
    return ranks_[0]->AdapterBytes(adapter);
  }
  // Adapters are copied by the step that needs them first, so that all GPUs have the same ones in
  // every step: then they record the same steps.
  bool PrepareAdapter(const std::shared_ptr<const llm::LoraAdapter>&) override { return true; }
  Result<std::vector<llm::FailedAdapter>> LoadAdapters(
      std::span<const std::shared_ptr<const llm::LoraAdapter>> adapters) override;
  llm::BlockStorage* block_storage() override { return storage_ ? &*storage_ : nullptr; }
  // Rank 0 has them; a drafter that reads them runs on its GPU.
  Status CaptureHiddenStates(std::span<const int32_t> layers, llm::HiddenStatePlace place) override;
  Status PrepareSteps() override;
  Status PrepareDraftSteps(const llm::DraftStepForm& form) override;
  // A fault of one GPU ends the step on all of them; waiting ranks are woken.
  Status Submit(const llm::StepBatch& batch) override;
  Result<llm::StepResult> Collect() override;

  GpuExecutor& rank(int32_t rank) { return *ranks_[rank]; }

 private:
  explicit ShardedExecutor(std::unique_ptr<PeerGroup> group)
      : group_(std::move(group)),
        ranks_(group_->count()),
        threads_(group_->count(), [this] { group_->Stop(); }) {}

  std::unique_ptr<PeerGroup> group_;
  std::vector<std::unique_ptr<GpuExecutor>> ranks_;
  std::optional<ShardedBlockStorage> storage_;  // of the ranks' storages; nothing: they have none
  std::chrono::milliseconds most_warm_up_time_{0};
  std::vector<llm::StepCostPoint> measured_costs_;  // of PrepareDraftSteps(); empty: none
  RankThreads threads_;
};

}  // namespace nereid::gpu
