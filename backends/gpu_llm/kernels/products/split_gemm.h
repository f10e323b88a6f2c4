// Products of some tens to hundreds of rows: out = in x weights^T by the tensor cores. The depth is
// split over the blocks of a cluster, so that also a narrow matrix keeps all processors busy, and
// int4 weights are unpacked to bf16 in registers on the way.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/products/stream_gemm.h"
#include "backends/gpu_llm/kernels/products/weight_format.h"

namespace nereid::gpu {

inline constexpr int kMaxSplit = 8;

struct SplitGemmParams {
  WeightMatrix weights;
  const void* in;           // [num_rows, depth]: fp8 (e4m3) with fp8 weights, else bf16
  const float* in_factors;  // [num_rows], with fp8 weights
  void* out;                // as `output` says, stream_gemm.h
  int num_rows;
  StreamOutput output;
  int split = 0;  // in how many parts the depth goes; 0: as many as are fast, at most kMaxSplit
};

bool CanSplit(const WeightMatrix& weights);
// An int4 weight is a bf16: (value - zero) times the scale, both as bf16. Equal calls give equal
// results.
cudaError_t SplitGemm(const SplitGemmParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
