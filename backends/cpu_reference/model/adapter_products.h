// Adds what the LoRA adapters of a step change to the outputs of its matrix products:
// out += B (A in) * scale, for the rows of the sequences that use an adapter. Ranks may differ. The
// arithmetic of a row does not depend on the other rows of the step. [engine thread]
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu_reference/ops/op_table.h"
#include "backends/cpu_reference/thread_pool.h"
#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/lora/lora_adapter.h"

namespace nereid::cpu {

class AdapterProducts {
 public:
  // Both must outlive the object.
  AdapterProducts(const OpTable& ops, ThreadPool& pool);

  // Finds the rows of each adapter. Borrows the adapters until the next call.
  void Prepare(const llm::StepBatch& batch);
  // Whether an adapter of the step changes this matrix.
  bool Changes(int32_t layer, llm::WeightKind kind) const;
  // Adds to out [tokens of the step, stride] the products of `in` [tokens, columns of the matrix].
  void AddTo(float* out, int64_t stride, int32_t layer, llm::WeightKind kind, const float* in) {
    if (!token_runs_.empty()) Add(token_runs_, out, stride, layer, kind, in);
  }
  // The same for the rows of logits.
  void AddToLogits(float* out, int64_t stride, const float* in) {
    if (!logit_runs_.empty())
      Add(logit_runs_, out, stride, llm::kNoLayer, llm::WeightKind::kLmHead, in);
  }

 private:
  // Consecutive rows that use the same adapter, few enough for one thread.
  struct Run {
    const llm::LoraAdapter* adapter;
    int64_t first_row;
    int64_t num_rows;
  };

  static void Append(const llm::LoraAdapter* adapter, int64_t first_row, int64_t num_rows,
                     std::vector<Run>& runs);
  void Add(const std::vector<Run>& runs, float* out, int64_t stride, int32_t layer,
           llm::WeightKind kind, const float* in);
  void AddRun(const Run& run, const llm::LoraDelta& delta, float* out, int64_t stride,
              const float* in, int thread);

  const OpTable& ops_;
  ThreadPool& pool_;
  std::vector<Run> token_runs_, logit_runs_;
  std::vector<std::vector<float>> low_rank_;  // per thread: scale * (A in)
  std::vector<std::vector<float>> scratch_;   // per thread, for MatmulParams::scratch
};

}  // namespace nereid::cpu
