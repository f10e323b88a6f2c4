// Products of some tens to hundreds of rows with int4 weights: out = in x weights^T by the tensor
// cores, with the weights unpacked to bf16 in registers on the way, so that 4 bits of each are
// read.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu_llm/kernels/stream_gemm.h"
#include "gpu_llm/kernels/weight_format.h"

namespace nereid::gpu {

inline constexpr int kInt4GemmMaxRows = 1024;

struct Int4GemmParams {
  WeightMatrix weights;     // int4
  const __nv_bfloat16* in;  // [num_rows, depth]
  void* out;                // as `output` says, stream_gemm.h
  int num_rows;             // at most kInt4GemmMaxRows
  StreamOutput output;
  float* partials;   // Int4GemmPartialBytes(), of no meaning between calls
  int32_t* tickets;  // Int4GemmTicketBytes(), zero before the first call and after each
};

int64_t Int4GemmPartialBytes(int num_processors);
int64_t Int4GemmTicketBytes(const WeightMatrix& weights);
bool CanMultiplyInt4(const WeightMatrix& weights, int num_rows);
// A weight is a bf16: (value - zero) times the scale, both as bf16.
void Int4Gemm(const Int4GemmParams& params, int num_processors, cudaStream_t stream);

}  // namespace nereid::gpu
