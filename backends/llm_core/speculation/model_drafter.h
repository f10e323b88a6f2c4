/// \file
/// A drafter that runs a smaller model with the same vocabulary: the draft model. It has an
/// executor of its own, and KV blocks of its own. [engine thread]
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backends/llm_core/engine/block_pool.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/speculation/drafter.h"

namespace nereid::llm {

/// Proposes what the draft model samples with the parameters, seed and positions of the target, for
/// all sequences of a call together. A proposal ends early where the draft model finds its own
/// token unlikely.
class ModelDrafter : public Drafter {
 public:
  /// A proposal ends before a token of a lower probability.
  static constexpr float kLeastProbability = 0.3f;

  /// `executor` runs the draft model, which has the target's vocabulary.
  explicit ModelDrafter(std::unique_ptr<Executor> executor,
                        float least_probability = kLeastProbability);
  ~ModelDrafter() override;

  /// Runs the draft model once, which reads its weights and allocates its memory: the first drafts
  /// would take so much longer that their time says nothing about later ones. Returns the error of
  /// a run that failed, after which no sequence gets drafts.
  Status WarmUp();

  std::string_view name() const override { return "draft"; }
  bool is_costly() const override { return true; }
  /// One call runs at most ExecutorLimits::max_num_tokens tokens that the draft model has not seen
  /// yet, so that a long prompt delays no step by much. Sequences that are further behind get no
  /// drafts. After an error of the executor, no sequence does.
  void Propose(std::span<DraftQuery> queries) override;

 private:
  class Cache;
  class State;
  struct Chain {
    DraftQuery* query = nullptr;
    State* state = nullptr;
  };

  /// The sequence's state, which then has the query's tokens.
  State& PrepareState(DraftQuery& query);
  /// Runs one step of the draft model for all chains_, and removes those that are complete.
  Status RunStep();
  /// Adds the next tokens of a chain to the batch. Returns false if it cannot go on.
  bool AppendEntry(const Chain& chain);
  /// Adds the token that the draft model sampled. Returns whether the chain goes on.
  bool Extend(const Chain& chain, const SampledToken& token) const;

  const std::unique_ptr<Executor> executor_;
  const ExecutorLimits limits_;
  const float least_probability_;
  const std::shared_ptr<Cache> cache_;  // shared with the states, which may live longer
  int32_t num_behind_ = 0;     // tokens of sequences that are behind, which this call may still run
  Status failure_;             // of the executor; ok: none so far
  StepBatch batch_;            // scratch memory
  std::vector<Chain> chains_;  // those without all of their drafts
  std::vector<Chain> running_;  // parallel to the entries of batch_
};

}  // namespace nereid::llm
