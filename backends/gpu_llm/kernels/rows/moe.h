// Mixture of experts around the grouped GEMM: selects the experts of each row, sorts the pairs of
// row and expert by expert, and combines the outputs of a row's experts.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

inline constexpr int kMaxExperts = 512;
inline constexpr int kMaxExpertsPerToken = 32;

inline constexpr int kMaxRouteSlices = 8;
constexpr int64_t RouteScoresSize(int64_t num_rows, int num_experts) {
  return kMaxRouteSlices * num_rows * (num_experts + 1);
}

// Pair = row * experts_per_token + rank.
struct RouteParams {
  const __nv_bfloat16* in;           // [num_rows, hidden_size]
  const __nv_bfloat16* norm_weight;  // [hidden_size]: RMS norm of the rows first; null: none
  float epsilon;
  __nv_bfloat16* normed;        // [num_rows, hidden_size], with a norm
  const __nv_bfloat16* router;  // [num_experts, hidden_size]
  float* scores;                // scratch, RouteScoresSize() floats
  int32_t* experts;             // [pairs]: highest score first, equal scores by expert number
  float* router_weights;        // [pairs]: softmax over the selected experts, or over all
  int num_rows, hidden_size, num_experts, experts_per_token;
  bool normalizes;  // the router weights of a row sum to 1
};

// Rows of a grouped GEMM that belong to one expert. expert < 0: empty.
struct ExpertTile {
  int32_t expert, first, count;  // sorted pairs [first, first + count)
};
// Upper bound of the number of tiles of at most `tile_rows` rows for `num_pairs` pairs.
constexpr int64_t MaxExpertTiles(int64_t num_pairs, int num_experts, int tile_rows) {
  return num_pairs / tile_rows + (num_pairs < num_experts ? num_pairs : num_experts);
}

struct SortPairsParams {
  const int32_t* experts;  // [num_pairs]
  int32_t* pairs;          // [num_pairs]: pairs in sorted order
  int32_t* sorted_index;   // [num_pairs]: position of each pair in `pairs`
  ExpertTile* tiles;       // [num_tiles]: all are written, empty ones are last
  int num_pairs, num_experts, tile_rows, num_tiles;
};
inline namespace NEREID_KERNEL_FORM {
void SortPairs(const SortPairsParams& params, cudaStream_t stream);

// Norm, scores, selection and sorting: one kernel, or two for many pairs. A row's experts and
// weights depend only on the row. Nothing is sorted if sort.pairs is null. `ticket`: counter of
// finished clusters, 0 before and after.
cudaError_t Route(const RouteParams& params, const SortPairsParams& sort, int32_t* ticket,
                  cudaStream_t stream);

// Selection alone, from scores [num_rows, num_experts] of an earlier kernel.
void SelectExperts(const RouteParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

struct CombineParams {
  const __nv_bfloat16* in;  // [num_pairs, hidden_size], in sorted order
  const int32_t* sorted_index;
  const float* router_weights;
  __nv_bfloat16* out;  // [num_rows, hidden_size]
  int num_rows, hidden_size, experts_per_token;
  bool accumulates;  // out += sum
  // With a norm_weight, also normed[row] = out[row] / rms(out[row]) * norm_weight.
  const __nv_bfloat16* norm_weight = nullptr;  // [hidden_size]; hidden_size at most 16,384
  __nv_bfloat16* normed = nullptr;             // [num_rows, hidden_size]
  float epsilon = 0.0f;
};
inline namespace NEREID_KERNEL_FORM {
void Combine(const CombineParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
