// A product of a step with a weight matrix: by the streaming kernel for a few rows, by split_gemm
// for some hundreds where it is faster, else by cuBLASLt, which sees quantised weights as bf16, or
// fp8 ones as they are where the input may be rounded to fp8 too. [engine thread]
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernels/products/stream_gemm.h"
#include "backends/gpu_llm/model/gemm.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/operator_timer.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct LinearCall {
  const GpuMatrix* weights = nullptr;
  const __nv_bfloat16* in = nullptr;           // [.., depth]
  const int32_t* rows = nullptr;               // [num_rows]: which rows of `in`; null: the first
  const __nv_bfloat16* norm_weight = nullptr;  // [depth]: the rows are RMS-normed first; null: not
  float epsilon = 0.0f;
  __nv_bfloat16* normed = nullptr;  // [num_rows, depth]: room for normed rows
  StreamOutput output = StreamOutput::kBf16;
  void* out = nullptr;
  void* scratch = nullptr;         // [num_rows, num_outputs] bf16, for kSiluGate
  int row_room = 0;                // of in, normed, out and scratch: as GemmCall's
  const char* name = "a product";  // in tables of times
  OperatorTimer* timer = nullptr;  // null: nothing is timed
};

class LinearRunner {
 public:
  // `max_num_rows`: of products with `weights`. `is_invariant`: a row's result does not depend on
  // how many there are: one kernel for all, slower than those made for a number of rows.
  static Result<LinearRunner> Create(const GpuWeights& weights, int max_num_rows,
                                     int num_processors, bool is_invariant = false);
  LinearRunner(LinearRunner&&) noexcept = default;

  // `may_time`: as Gemm::Run's.
  Status Run(const LinearCall& call, int num_rows, bool may_time, cudaStream_t stream);
  // As Gemm's.
  bool TakeSettled() { return gemm_.TakeSettled(); }

 private:
  LinearRunner(Gemm gemm, int num_processors)
      : gemm_(std::move(gemm)), num_processors_(num_processors) {}
  // Norm and gathered columns by kernels of their own: then `call` has neither.
  void PrepareInput(LinearCall& call, int num_rows, cudaStream_t stream);
  // `call` has neither.
  Status RunInvariant(const LinearCall& call, int num_rows, cudaStream_t stream);
  Status Stream(const LinearCall& call, int num_rows, cudaStream_t stream);
  // `in`: the call's, or those rows as fp8, with factors.
  Status Split(const LinearCall& call, const void* in, const float* in_factors, int num_rows,
               cudaStream_t stream);
  // Of fp8 weights, with the input rounded to fp8.
  Status MultiplyFp8(const LinearCall& call, int num_rows, bool may_time, cudaStream_t stream);
  Status MultiplyBf16(const LinearCall& call, int num_rows, bool may_time, cudaStream_t stream);

  Gemm gemm_;
  int num_processors_;
  bool is_invariant_ = false;
  DeviceMemory gathered_;     // [max_num_rows, the largest depth of a matrix that gathers]
  DeviceMemory dequantized_;  // the largest matrix that is unpacked
  DeviceMemory fp8_rows_;     // [max_num_rows, the largest depth of a matrix with fp8 input]
  DeviceMemory fp8_factors_;  // [max_num_rows]
};

}  // namespace nereid::gpu
