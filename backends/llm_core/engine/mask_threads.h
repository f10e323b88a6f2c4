// Computes the masks of a step on threads of its own, while the executor runs the model. The
// threads start with the first step that has masks.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/sequence.h"
#include "backends/llm_core/engine/sequence_grammar.h"

namespace nereid::llm {

class MaskThreads {
 public:
  // At most; fewer on a machine with fewer than four processors for each of them.
  static constexpr unsigned kMaxThreads = 4;

  MaskThreads() = default;
  ~MaskThreads();
  MaskThreads(const MaskThreads&) = delete;
  MaskThreads& operator=(const MaskThreads&) = delete;

  // Calls ComputeMask for the sequences whose entries have masks, and sets wait_for_masks. The
  // sequences must stay unchanged until Wait has returned, which precedes the next Start. `batch`
  // must not outlive the object. [engine thread]
  void Start(StepBatch& batch, std::span<Sequence* const> sequences);
  // Helps with what no thread has begun, and returns when all is done. [any thread]
  void Wait();

 private:
  void Run();
  // Computes the next mask. Returns false if all are begun. `lock` is held before and after.
  bool ComputeNext(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;  // guards the members below
  std::condition_variable started_, done_;
  std::vector<SequenceGrammar*> grammars_;
  size_t num_begun_ = 0, num_done_ = 0;
  bool stop_ = false;

  std::vector<std::thread> threads_;  // last member: the threads use the others
};

}  // namespace nereid::llm
