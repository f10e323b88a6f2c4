// The threads that compute masks.
#include "backends/llm_core/engine/mask_threads.h"

#include <algorithm>
#include <utility>

#include "base/thread.h"

namespace nereid::llm {

MaskThreads::~MaskThreads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void MaskThreads::Start(StepBatch& batch, std::span<Sequence* const> sequences) {
  std::vector<SequenceGrammar*> grammars;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (!batch.entries[i].token_masks.empty()) grammars.push_back(sequences[i]->grammar.get());
  }
  batch.wait_for_masks = [this] { Wait(); };
  size_t num_waking = 0;
  {
    const std::lock_guard lock(mutex_);
    grammars_ = std::move(grammars);
    num_begun_ = num_done_ = 0;
    num_waking = grammars_.size();
  }
  if (threads_.empty()) {
    const unsigned count = std::clamp(std::thread::hardware_concurrency() / 4, 1u, kMaxThreads);
    StartThreads(
        count, [this](size_t) { Run(); }, threads_);  // Wait does what they do not
  }
  for (size_t i = 0; i < std::min(num_waking, threads_.size()); ++i) started_.notify_one();
}

void MaskThreads::Wait() {
  std::unique_lock lock(mutex_);
  while (ComputeNext(lock)) {
  }
  done_.wait(lock, [this] { return num_done_ == grammars_.size(); });
}

void MaskThreads::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!ComputeNext(lock)) started_.wait(lock);
  }
}

bool MaskThreads::ComputeNext(std::unique_lock<std::mutex>& lock) {
  if (num_begun_ == grammars_.size()) return false;
  SequenceGrammar& grammar = *grammars_[num_begun_++];
  lock.unlock();
  grammar.ComputeMask();
  lock.lock();
  if (++num_done_ == grammars_.size()) done_.notify_all();
  return true;
}

}  // namespace nereid::llm
