// Products of a step with the weights, by cuBLASLt. Which of its algorithms is taken for a size is
// found by timing them once (algorithm_trial.h), and remembered (algorithm_cache.h). [engine
// thread]
#pragma once

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "gpu_llm/cuda/memory.h"
#include "gpu_llm/cuda/stream.h"
#include "gpu_llm/model/algorithm_cache.h"
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
  void* scratch =
      nullptr;  // with `accumulates`: as large as out, overwritten when algorithms are timed
  int num_rows = 0, num_outputs = 0, depth = 0;
  // Rows that in, in_factors, out and scratch have room for: trials take more than num_rows, and
  // leave anything in those beyond. Less than num_rows: no more than those.
  int row_room = 0;
  bool out_is_float = false;  // else bf16
  bool accumulates = false;

  bool is_fp8() const { return weight_factors != nullptr; }
};

class Gemm {
 public:
  static Result<Gemm> Create();
  Gemm(Gemm&&) noexcept = default;

  // `may_time`: algorithms not yet known for this size are timed now (not while a graph is
  // recorded).
  Status Run(const GemmCall& call, bool may_time, cudaStream_t stream);

 private:
  struct LtDeleter {
    void operator()(cublasLtContext* handle) const { (void)cublasLtDestroy(handle); }
  };
  class Layouts;

  Gemm() = default;
  // What the library holds for the best for this size, best first, at most so many.
  Result<std::vector<cublasLtMatmulAlgo_t>> Propose(const GemmCall& call, const Layouts& layouts,
                                                    int count);
  // Adds the fastest algorithm for the key, which is the call's, to those that are known, if any
  // can run; beyond this process only what was tried with all of the key's rows.
  Status Try(const GemmCall& call, const AlgorithmKey& key, cudaStream_t stream);
  // Seconds.
  Result<double> Time(const GemmCall& call, const Layouts& layouts,
                      const cublasLtMatmulAlgo_t& algorithm, void* out, cudaStream_t stream);
  cublasStatus_t Multiply(const GemmCall& call, const Layouts& layouts,
                          const cublasLtMatmulAlgo_t& algorithm, void* out, cudaStream_t stream);

  std::unique_ptr<cublasLtContext, LtDeleter> handle_;
  DeviceMemory workspace_;
  Event start_, end_;
  AlgorithmCache algorithms_;
  std::set<AlgorithmKey> tried_;  // also those of which no algorithm could run
};

}  // namespace nereid::gpu
