// Products of few rows with large weights, bound by reading the weights: out = in x weights^T. The
// weights start to flow before the kernel ahead has ended; the norm of the input is taken on the
// way, and so is the unpacking of quantised weights.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/products/weight_format.h"

namespace nereid::gpu {

inline constexpr int kStreamMaxRows = 16;

enum class StreamOutput : int32_t {
  kBf16,      // out [num_rows, num_outputs] bf16
  kFloat,     // the same, float
  kAdd,       // out += product, bf16
  kSiluGate,  // weights as silu_gate.h has them; out [num_rows, num_outputs / 2] bf16
};

struct StreamGemmParams {
  WeightMatrix weights;
  const __nv_bfloat16* in;  // [.., depth]
  const int32_t* rows;      // [num_rows]: which rows of `in`; null: the first
  const __nv_bfloat16*
      norm_weight;  // [depth]: the rows are RMS-normed first; null: taken as they are
  void* out;
  int num_rows;
  float epsilon;
  StreamOutput output;
};

// `norms`: with a norm_weight.
bool CanStream(const WeightMatrix& weights, int num_rows, bool norms);
void StreamGemm(const StreamGemmParams& params, int num_processors, cudaStream_t stream);

}  // namespace nereid::gpu
