// Products of a step with the weights, by cuBLASLt. Which of its algorithms is taken for a size is
// found by timing the first calls of that size, each with another one (algorithm_trial.h), and
// remembered (algorithm_cache.h). [engine thread]
#pragma once

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backends/gpu_llm/cuda/call_clock.h"
#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/model/algorithm_cache.h"
#include "backends/gpu_llm/model/algorithm_trial.h"
#include "nereid/status.h"

namespace nereid::gpu {

// out [num_rows, num_outputs] (+)= in [num_rows, depth] x weights [num_outputs, depth]^T, all
// row-major.
// Both operands are bf16, or both fp8 (e4m3) with a factor a row each.
struct GemmCall {
  const void* weights = nullptr;
  const void* in = nullptr;
  const float* weight_factors = nullptr;  // [num_outputs]; null: bf16
  const float* in_factors = nullptr;      // [num_rows]
  void* out = nullptr;
  int num_rows = 0, num_outputs = 0, depth = 0;
  // Rows that in, in_factors and out have room for: a call that is timed takes more than num_rows,
  // and leaves anything in those beyond. Less than num_rows: no more than those.
  int row_room = 0;
  bool out_is_float = false;  // else bf16
  bool accumulates = false;

  bool is_fp8() const { return weight_factors != nullptr; }
};

class Gemm {
 public:
  static Result<Gemm> Create();
  Gemm(Gemm&&) noexcept = default;

  // `may_time`: while the algorithm of this size is not known, the call is timed with one of those
  // in question (not while a graph is recorded).
  Status Run(const GemmCall& call, bool may_time, cudaStream_t stream);
  // Whether all calls since the last look took the algorithm that later ones will take.
  bool TakeSettled() { return std::exchange(is_settled_, true); }

 private:
  struct LtDeleter {
    void operator()(cublasLtContext* handle) const { (void)cublasLtDestroy(handle); }
  };
  class Layouts;

  Gemm() = default;
  // What the library holds for the best for this size, best first, at most so many.
  Result<std::vector<cublasLtMatmulAlgo_t>> Propose(const GemmCall& call, const Layouts& layouts,
                                                    int count);
  // Of a size whose algorithm is looked for, or of which none could run.
  struct Search {
    std::vector<cublasLtMatmulAlgo_t> candidates;
    AlgorithmTrial trial;
    bool has_all_rows = true;  // timed calls had all rows that share the algorithm
  };
  // The one for the call, whose key is `key`; begun now where it is new.
  Result<Search*> SearchFor(const GemmCall& call, const AlgorithmKey& key);
  // A search that is over adds its algorithm, if any could run, to those that are known; beyond
  // this process only what was tried with all of the key's rows.
  void Conclude(const AlgorithmKey& key, const Search& search);
  // What timed calls took, as far as the device is through with them.
  Status TakeTimes();
  // The call, for which no algorithm is known yet, with one in question. False: there is none, and
  // nothing was done.
  Result<bool> RunTimed(const GemmCall& call, const AlgorithmKey& key, cudaStream_t stream);
  // Not CUBLAS_STATUS_SUCCESS: the algorithm does not fit the call, and nothing was done.
  cublasStatus_t TryRun(const GemmCall& call, const Layouts& layouts,
                        const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream);

  std::unique_ptr<cublasLtContext, LtDeleter> handle_;
  DeviceMemory workspace_;
  AlgorithmCache algorithms_;
  std::map<AlgorithmKey, Search> searches_;
  struct TimedCall {
    AlgorithmKey key;
    int index;  // of the candidate
  };
  CallClock<TimedCall> clock_;
  bool is_settled_ = true;
};

}  // namespace nereid::gpu
