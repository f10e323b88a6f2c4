// Matrix products by cuBLASLt. The algorithm of a size is chosen by timing the first calls of that
// size, each with another candidate (algorithm_trial.h), and is remembered (algorithm_cache.h).
// [engine thread]
#pragma once

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backends/gpu_llm/cuda/event_timer.h"
#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/model/algorithm_cache.h"
#include "backends/gpu_llm/model/algorithm_trial.h"
#include "nereid/status.h"

namespace nereid::gpu {

// out [num_rows, num_outputs] (+)= in [num_rows, depth] x weights [num_outputs, depth]^T,
// row-major. Both operands are bf16, or both are fp8 (e4m3) with one scale for each row.
struct CublasGemmCall {
  const void* weights = nullptr;
  const void* in = nullptr;
  const float* weight_scales = nullptr;  // [num_outputs]; null: bf16
  const float* in_scales = nullptr;      // [num_rows]
  void* out = nullptr;
  int num_rows = 0, num_outputs = 0, depth = 0;
  // Rows that fit in `in`, `in_scales` and `out`. A timed call may compute more than num_rows rows;
  // the values of the extra rows are undefined. A value below num_rows means num_rows.
  int row_capacity = 0;
  bool out_is_float = false;  // else bf16
  bool accumulates = false;

  bool is_fp8() const { return weight_scales != nullptr; }
};

class CublasGemm {
 public:
  static Result<CublasGemm> Create();
  CublasGemm(CublasGemm&&) noexcept = default;

  // `may_time`: while the algorithm of this size is unknown, the call is timed with a candidate.
  // Otherwise it uses the library's first proposal. Must be false during graph capture.
  Status Run(const CublasGemmCall& call, bool may_time, cudaStream_t stream);
  // How many calls since the last TakeNumTrials() did not use their final algorithm.
  int TakeNumTrials() { return std::exchange(num_trials_, 0); }

 private:
  struct LtDeleter {
    void operator()(cublasLtContext* handle) const { (void)cublasLtDestroy(handle); }
  };
  class Layouts;

  CublasGemm() = default;
  // The library's proposals for this size, best first, at most `count`.
  Result<std::vector<cublasLtMatmulAlgo_t>> Propose(const CublasGemmCall& call,
                                                    const Layouts& layouts, int count);
  // Search for the algorithm of a size.
  struct AlgorithmSearch {
    std::vector<cublasLtMatmulAlgo_t> candidates;
    AlgorithmTrial trial;
    bool has_all_rows = true;  // all timed calls had the trial's row count
  };
  // Returns the search for the call with key `key`; starts it if it is new.
  Result<AlgorithmSearch*> SearchFor(const CublasGemmCall& call, const AlgorithmKey& key);
  // If the search is over, stores its fastest algorithm. Only a trial with the full row count is
  // stored in the file.
  void FinishIfOver(const AlgorithmKey& key, const AlgorithmSearch& search);
  // Reports the timings that the device has completed.
  Status CollectTimings();
  // Runs the call with a candidate. False: no candidate is left, and nothing was done.
  Result<bool> RunTrial(const CublasGemmCall& call, const AlgorithmKey& key, cudaStream_t stream);
  // Runs the call with the library's first proposal for a size that it shares with others. False:
  // nothing was done.
  bool RunProposed(const CublasGemmCall& call, const Layouts& layouts, cudaStream_t stream);
  // An error means that the algorithm does not support the call, and nothing was done.
  cublasStatus_t TryRun(const CublasGemmCall& call, const Layouts& layouts,
                        const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream);

  std::unique_ptr<cublasLtContext, LtDeleter> handle_;
  DeviceMemory workspace_;
  AlgorithmCache algorithms_;
  std::map<AlgorithmKey, Algorithm> proposed_;  // of sizes that were not tried
  std::map<AlgorithmKey, AlgorithmSearch> searches_;
  struct TimedCall {
    AlgorithmKey key;
    int index;  // of the candidate
  };
  EventTimer<TimedCall> timer_;
  int num_trials_ = 0;
};

}  // namespace nereid::gpu
