// Sizes of the fused decode step (decode_step.h), and the kernels that are compiled for them. Free
// of CUDA.
#pragma once

#include <iterator>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/gemm/weight_format.h"

namespace nereid::gpu {

inline constexpr int kDecodeStepRows = 8;          // maximum
inline constexpr int kDecodeStepRowExperts = 8;    // of a row, maximum
inline constexpr int kDecodeStepMaxExperts = 512;  // of a layer
inline constexpr int kDecodeStepGroup = 8;         // query heads of a key/value head, maximum
inline constexpr int kDecodeStepTileOutputs = 16;

// Of a model; matrices of layers have one format.
struct DecodeStepSizes {
  WeightFormat format;
  CacheFormat cache_format;
  int scales_per_block;  // int4
  int hidden_size, inner_size, num_heads, num_kv_heads, head_dim;
  // Of layers with experts; 0: there are none.
  int num_experts, experts_per_token, expert_inner_size;
  int head_outputs;  // rows of the LM head
};

// Each weight format and cache format has one kernel for each of these.
struct StepKernel {
  bool has_experts;
  int head_dim, max_hidden_size;
};
inline constexpr StepKernel kStepKernels[] = {
    {false, 16, 4096},  {false, 64, 4096},  {false, 96, 4096},
    {false, 128, 4096}, {false, 128, 8192}, {true, 128, 4096},
};

// Index of the kernel of a model in kStepKernels; -1: there is none.
constexpr int FindStepKernel(const DecodeStepSizes& sizes) {
  for (int i = 0; i < static_cast<int>(std::size(kStepKernels)); ++i) {
    const StepKernel& kernel = kStepKernels[i];
    if (kernel.has_experts == (sizes.num_experts > 0) && kernel.head_dim == sizes.head_dim &&
        sizes.hidden_size <= kernel.max_hidden_size) {
      return i;
    }
  }
  return -1;
}

}  // namespace nereid::gpu
