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
inline constexpr int kDecodeStepUnitHeads = 8;     // query heads of a unit of attention, maximum
inline constexpr int kWideHeadDim = 128;           // wider heads need StepLayers::kGeneral
inline constexpr int kDecodeStepTileOutputs = 16;

// The kinds of layers that have kernels of their own. All layers of a model are of one kind.
enum class StepLayers : uint8_t {
  // RMS norms before attention and MLP, a SiLU gate, biases of q, k and v alone, and up to
  // kDecodeStepUnitHeads query heads a key/value head.
  kPlain,
  kExperts,  // the same, and experts in some of them
  // Any norms, activation and biases, with or without a gate, norms after attention and MLP,
  // parallel residuals, a soft cap of scores, heads of 256 columns, and any number of query heads a
  // key/value head. With heads of 256, only steps with one token of each sequence.
  kGeneral,
};

// The number of query heads that a unit of attention has where `group` query heads share a
// key/value head: all of them, or the largest equal part with at most kDecodeStepUnitHeads.
constexpr int StepUnitHeads(int group) {
  int heads = group < kDecodeStepUnitHeads ? group : kDecodeStepUnitHeads;
  while (group % heads != 0) --heads;
  return heads;
}
// The number of units of attention that an item of the context has.
constexpr int StepItemUnits(int num_heads, int num_kv_heads) {
  return num_heads / StepUnitHeads(num_heads / num_kv_heads);
}

// Of a model; matrices of layers have one format.
struct DecodeStepSizes {
  WeightFormat format;
  CacheFormat cache_format;
  int scales_per_block;  // int4
  int hidden_size, inner_size, num_heads, num_kv_heads, head_dim;
  // Of layers with experts; 0: there are none.
  int num_experts, experts_per_token, expert_inner_size;
  int head_outputs;  // rows of the LM head
  StepLayers layers;
};

// For each of these there is a kernel for steps of one row and one for steps of several rows.
struct StepKernel {
  StepLayers layers;
  int head_dim, max_hidden_size;
};
inline constexpr StepKernel kStepKernels[] = {
    {StepLayers::kPlain, 16, 4096},    {StepLayers::kPlain, 64, 4096},
    {StepLayers::kPlain, 96, 4096},    {StepLayers::kPlain, 128, 4096},
    {StepLayers::kPlain, 128, 8192},   {StepLayers::kExperts, 128, 4096},
    {StepLayers::kGeneral, 96, 8192},  {StepLayers::kGeneral, 128, 8192},
    {StepLayers::kGeneral, 256, 4096},
};

// Whether the kernel is compiled for a pair of formats. Heads of 16 columns, which only small
// models for tests have, have one pair.
constexpr bool IsCompiled(const StepKernel& kernel, WeightFormat weights, CacheFormat cache) {
  return kernel.head_dim > 16 || (weights == WeightFormat::kBf16 && cache == CacheFormat::kBf16);
}

// Index of the kernel of a model in kStepKernels; -1: there is none.
constexpr int FindStepKernel(const DecodeStepSizes& sizes) {
  for (int i = 0; i < static_cast<int>(std::size(kStepKernels)); ++i) {
    const StepKernel& kernel = kStepKernels[i];
    if (kernel.layers == sizes.layers && kernel.head_dim == sizes.head_dim &&
        sizes.hidden_size <= kernel.max_hidden_size &&
        IsCompiled(kernel, sizes.format, sizes.cache_format)) {
      return i;
    }
  }
  return -1;
}

}  // namespace nereid::gpu
