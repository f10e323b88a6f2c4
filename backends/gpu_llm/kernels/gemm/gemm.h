// The GEMM kernels: stream GEMM for few rows, split-K GEMM for tens to hundreds of rows, and
// grouped GEMM for experts and batch invariance. kernel_registry.h chooses among them and cuBLASLt.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/gpu_llm/kernels/gemm/gemm_shapes.h"
#include "backends/gpu_llm/kernels/gemm/weight_format.h"
#include "backends/gpu_llm/kernels/rows/moe.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::gpu {

inline constexpr int kMaxSplitTickets = 4096;

// Device memory for sums that blocks of threads pass to others. Calls on one stream share it.
struct SplitScratch {
  float* partials = nullptr;   // [num_partials]; null: the depth is not split
  int32_t* tickets = nullptr;  // [kMaxSplitTickets]: counters, 0 before and after a call
  int64_t num_partials = 0;
};

// Weight-streaming GEMM for few rows, bound by reading the weights: out = in x weights^T. Weight
// copies start before the previous kernel has ended. The RMS norm of the input and the unpacking of
// quantized weights are fused. The input of int4 weights may be rounded: values below 1/64 of the
// largest in a block of columns lose bits.
struct StreamGemmParams {
  WeightMatrix weights;
  const __nv_bfloat16* in;           // [.., depth]
  const int32_t* rows;               // [num_rows]: rows of `in`; null: the first num_rows
  const __nv_bfloat16* norm_weight;  // [depth]: RMS norm of the rows; null: none
  void* out;
  int num_rows;  // at most kStreamMaxRows
  float epsilon;
  GemmEpilogue output;
  const __nv_bfloat16* bias = nullptr;  // [num_outputs], with kAdd, kActivate, kGate; null: none
  llm::Activation activation = llm::Activation::kSilu;  // of kActivate and kGate
};

inline namespace NEREID_KERNEL_FORM {
void StreamGemm(const StreamGemmParams& params, int num_processors, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// Split-K GEMM for tens to hundreds of rows: out = in x weights^T on the tensor cores. The depth is
// split over several blocks, in the native form those of a cluster, so that a narrow matrix also
// occupies all multiprocessors. Int4 weights are unpacked to bf16 in registers.
inline constexpr int kMaxSplit = 8;
inline constexpr int kMaxSplitGroups = 4;
inline constexpr int kEqualShares = kMaxSplit + 1;  // SplitGemmParams::split of the native form

struct SplitGemmParams {
  WeightMatrix weights;
  // [num_rows, depth]: fp8 (e4m3) with fp8 weights that quantize their input, else bf16
  const void* in;
  const float* in_scales;  // [num_rows], with an input in fp8
  void* out;               // layout: GemmEpilogue
  int num_rows;
  GemmEpilogue output;
  // Number of slices of the depth, at most kMaxSplit, or kEqualShares where it can have them; 0:
  // the fastest.
  int split = 0;
  SplitScratch scratch = {};
  const __nv_bfloat16* bias = nullptr;  // as for StreamGemm()
  llm::Activation activation = llm::Activation::kSilu;
  // The number of groups of 64 outputs that a block of threads computes, 1 to kMaxSplitGroups; 0:
  // the fastest. Only the native form reads it, and a number other than 0 excludes equal shares.
  int groups = 0;
};

inline namespace NEREID_KERNEL_FORM {
// An int4 weight becomes the bf16 product of (value - zero) and the scale, both bf16. Equal calls
// give equal results.
cudaError_t SplitGemm(const SplitGemmParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// Grouped GEMM: multiplies each row by the matrix of its expert, for all experts in one launch:
// out[i] = in[row of i] x weights[expert]^T. A row's result depends only on the row: the order of
// additions does not depend on other rows or on the tile size.
struct GroupedGemmParams {
  const __nv_bfloat16* in;  // [.., depth]
  // [rows of out]: row i of `out` reads row pairs[i] / pairs_per_row of `in`; null: row i.
  const int32_t* pairs;
  int pairs_per_row;             // with `pairs`
  const __nv_bfloat16* weights;  // [num_experts] matrices [num_outputs, depth]
  int64_t expert_stride;         // elements from one matrix to the next
  const ExpertTile* tiles;       // [num_tiles]; null: all rows use one matrix
  int num_rows;                  // without tiles
  void* out;                     // [rows of out, num_outputs] bf16, or float with out_is_float
  int num_tiles;
  int num_outputs;  // a multiple of 8; of 16 with a gate; any number for floats
  int depth;        // a multiple of 8
  int tile_rows;    // kSmallExpertTile or kLargeExpertTile
  bool out_is_float;
  bool accumulates;  // out += product
  bool gates;  // applies SiLU gate; weights as in activation.h, out [rows of out, num_outputs / 2]
};

inline namespace NEREID_KERNEL_FORM {
void GroupedGemm(const GroupedGemmParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
