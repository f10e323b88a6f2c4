#include "backends/cpu_reference/model/adapter_products.h"

#include <algorithm>

#include "backends/cpu_reference/model/linear_products.h"
#include "backends/cpu_reference/ops/matmul.h"

namespace nereid::cpu {
namespace {

// Rows of a prompt that one thread computes together.
constexpr int64_t kMaxRunRows = 32;

WeightMatrix MatrixOf(const llm::LoraMatrix& from) {
  WeightMatrix matrix;
  matrix.data = from.data;
  matrix.rows = from.rows;
  matrix.columns = from.columns;
  matrix.type = from.type == llm::CheckpointDataType::kF32   ? WeightFormat::kF32
                : from.type == llm::CheckpointDataType::kF16 ? WeightFormat::kF16
                                                             : WeightFormat::kBf16;
  return matrix;
}

}  // namespace

AdapterProducts::AdapterProducts(const OpTable& ops, ThreadPool& pool)
    : ops_(ops), pool_(pool), low_rank_(pool.num_threads()), scratch_(pool.num_threads()) {}

void AdapterProducts::Append(const llm::LoraAdapter* adapter, int64_t first_row, int64_t num_rows,
                             std::vector<Run>& runs) {
  for (int64_t row = first_row; row < first_row + num_rows;) {
    Run* const last = runs.empty() ? nullptr : &runs.back();
    const bool continues = last != nullptr && last->adapter == adapter &&
                           last->first_row + last->num_rows == row && last->num_rows < kMaxRunRows;
    if (!continues) runs.push_back({adapter, row, 0});
    const int64_t added = std::min(kMaxRunRows - runs.back().num_rows, first_row + num_rows - row);
    runs.back().num_rows += added;
    row += added;
  }
}

void AdapterProducts::Prepare(const llm::StepBatch& batch) {
  token_runs_.clear();
  logit_runs_.clear();
  if (batch.adapters.empty()) return;
  int64_t logit_row = 0;
  for (const llm::BatchEntry& entry : batch.entries) {
    if (entry.adapter != llm::kNoAdapter) {
      const llm::LoraAdapter* adapter = batch.adapters[entry.adapter].get();
      Append(adapter, entry.first_token, entry.num_tokens, token_runs_);
      Append(adapter, logit_row, entry.num_logits, logit_runs_);
    }
    logit_row += entry.num_logits;
  }
}

bool AdapterProducts::Changes(int32_t layer, llm::WeightKind kind) const {
  return layer != llm::kNoLayer &&
         std::any_of(token_runs_.begin(), token_runs_.end(),
                     [&](const Run& run) { return run.adapter->Find(layer, kind) != nullptr; });
}

void AdapterProducts::Add(const std::vector<Run>& runs, float* out, int64_t stride, int32_t layer,
                          llm::WeightKind kind, const float* in) {
  if (layer == llm::kNoLayer && kind != llm::WeightKind::kLmHead) return;  // an expert
  int64_t work = 0;
  for (const Run& run : runs) {
    const llm::LoraDelta* delta = run.adapter->Find(layer, kind);
    if (delta != nullptr) work += run.num_rows * delta->rank() * (delta->a.columns + delta->b.rows);
  }
  if (work == 0) return;
  const auto add = [&](int64_t i, int thread) {
    const llm::LoraDelta* delta = runs[i].adapter->Find(layer, kind);
    if (delta != nullptr) AddRun(runs[i], *delta, out, stride, in, thread);
  };
  const auto num_runs = static_cast<int64_t>(runs.size());
  if (work >= kMinSharedWork) return pool_.ParallelFor(num_runs, add);
  for (int64_t i = 0; i < num_runs; ++i) add(i, 0);
}

void AdapterProducts::AddRun(const Run& run, const llm::LoraDelta& delta, float* out,
                             int64_t stride, const float* in, int thread) {
  const int64_t rank = delta.rank(), columns = delta.a.columns;
  std::vector<float>& low_rank = low_rank_[thread];
  EnsureSize(low_rank, run.num_rows * rank);
  EnsureSize(scratch_[thread], MatmulScratchFloats(run.num_rows, std::max(columns, rank)));
  MatmulParams shrink;
  shrink.in = in + run.first_row * columns;
  shrink.num_rows = run.num_rows;
  shrink.weights = MatrixOf(delta.a);
  shrink.out = low_rank.data();
  shrink.out_stride = rank;
  shrink.last_output = rank;
  shrink.scratch = scratch_[thread].data();
  ops_.matmul(shrink);
  for (int64_t i = 0; i < run.num_rows * rank; ++i) low_rank[i] *= delta.scale;
  MatmulParams expand = shrink;
  expand.in = low_rank.data();
  expand.weights = MatrixOf(delta.b);
  expand.out = out + run.first_row * stride;
  expand.out_stride = stride;
  expand.accumulate = true;
  expand.last_output = delta.b.rows;
  ops_.matmul(expand);
}

}  // namespace nereid::cpu
