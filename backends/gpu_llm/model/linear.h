// Matrix products of a step with weights: runs the kernel that kernel_registry.h chooses, with the
// kernels before and behind it. cuBLASLt reads quantized weights dequantized to bf16, or fp8
// weights directly if the input may be quantized to fp8. [engine thread]
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/model/cublas_gemm.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/operator_timer.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct LinearCall {
  const GpuMatrix* weights = nullptr;
  const __nv_bfloat16* in = nullptr;           // [.., depth]
  const int32_t* rows = nullptr;               // [num_rows]: rows of `in`; null: the first num_rows
  const __nv_bfloat16* norm_weight = nullptr;  // [depth]: RMS norm of the rows; null: none
  float epsilon = 0.0f;
  __nv_bfloat16* normed = nullptr;  // [num_rows, depth]: buffer for normed rows
  GemmEpilogue output = GemmEpilogue::kBf16;
  const __nv_bfloat16* bias = nullptr;  // [num_outputs], with kAdd, kActivate, kGate; null: none
  llm::Activation activation = llm::Activation::kSilu;  // of kActivate and kGate
  void* out = nullptr;
  // [num_rows, num_outputs] bf16, for activations, gates and biases that follow the product
  void* scratch = nullptr;
  int row_capacity = 0;  // rows of in, normed, out and scratch: CublasGemmCall::row_capacity
  const char* name = "matrix product";  // operator name in profiles
  OperatorTimer* timer = nullptr;       // null: no profile
};

class LinearRunner {
 public:
  // `max_num_rows`: maximum of all calls. `is_batch_invariant`: a row's result does not depend on
  // the number of rows; one kernel computes all products, slower than the specialized ones.
  static Result<LinearRunner> Create(const GpuWeights& weights, int max_num_rows,
                                     int num_processors, bool is_batch_invariant = false);
  LinearRunner(LinearRunner&&) noexcept = default;

  // `may_time`: see CublasGemm::Run().
  Status Run(const LinearCall& call, int num_rows, bool may_time, cudaStream_t stream);
  // Whether a separate kernel would norm the rows before the product with the matrix.
  bool NormsBefore(const GpuMatrix& weights, GemmEpilogue output, int num_rows) const;
  // See CublasGemm::TakeNumTrials().
  int TakeNumTrials() { return gemm_.TakeNumTrials(); }

 private:
  LinearRunner(CublasGemm gemm, KernelForm form, KernelMode mode, int num_processors)
      : gemm_(std::move(gemm)), form_(form), mode_(mode), num_processors_(num_processors) {}
  SplitScratch split_scratch() const {
    return {split_partials_.as<float>(), split_tickets_.as<int32_t>(),
            static_cast<int64_t>(split_partials_.size_bytes() / 4)};
  }
  ProductChoice Choose(const LinearCall& call, int num_rows) const;
  Status RunKernel(const LinearCall& call, const ProductChoice& choice, int num_rows, bool may_time,
                   cudaStream_t stream);
  // Applies norm and column gathering with separate kernels and removes them from `call`.
  void PrepareInput(LinearCall& call, int num_rows, cudaStream_t stream);
  // Multiplies weights in bf16 with StreamExperts(). `call` has neither norm nor gathering.
  Status RunRowTiles(const LinearCall& call, int tile_rows, int num_rows, cudaStream_t stream);
  // `call` has neither norm nor gathering.
  Status RunBatchInvariant(const LinearCall& call, const ProductChoice& choice, int num_rows,
                           cudaStream_t stream);
  Status RunStreamGemm(const LinearCall& call, int num_rows, cudaStream_t stream);
  // `in`: the call's rows, or their fp8 quantization with `in_scales`.
  Status RunSplitGemm(const LinearCall& call, const void* in, const float* in_scales, int num_rows,
                      cudaStream_t stream);
  // Norms the rows and quantizes them to fp8, for a product with fp8 weights.
  void QuantizeInput(const LinearCall& call, int num_rows, cudaStream_t stream);
  Status RunFp8ExpertGemm(const LinearCall& call, int num_rows, cudaStream_t stream);
  Status RunFp8Gemm(const LinearCall& call, int num_rows, bool may_time, cudaStream_t stream);
  Status RunBf16Gemm(const LinearCall& call, int num_rows, bool may_time, cudaStream_t stream);

  CublasGemm gemm_;
  KernelForm form_;
  KernelMode mode_;
  int num_processors_;
  DeviceMemory gathered_;     // [max_num_rows, largest depth of a matrix that gathers]
  DeviceMemory dequantized_;  // the largest matrix that is dequantized
  DeviceMemory fp8_rows_;     // [max_num_rows, largest depth of a matrix with fp8 input]
  DeviceMemory fp8_scales_;   // [max_num_rows]
  DeviceMemory split_partials_, split_tickets_;  // SplitScratch
};

}  // namespace nereid::gpu
