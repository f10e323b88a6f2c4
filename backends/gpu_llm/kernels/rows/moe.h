// Mixture of experts around the grouped product: which experts a row goes to, the pairs of row and
// expert sorted by expert, and the sum of what a row's experts made.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace nereid::gpu {

inline constexpr int kMaxExperts = 512;
inline constexpr int kMaxExpertsPerToken = 32;

// Pair = row * experts_per_token + rank.
struct RouteParams {
  float* scores;     // [num_rows, num_experts]: rows x router^T
  int32_t* experts;  // [pairs], the likeliest first, equal ones by number
  float* shares;     // [pairs]: softmax over the chosen ones, or over all
  int num_rows, num_experts, experts_per_token;
  bool normalizes;  // shares of a row add up to 1
};
void Route(const RouteParams& params, cudaStream_t stream);

// Rows of a grouped product, all of one expert. expert < 0: nothing to do.
struct ExpertTile {
  int32_t expert, first, count;  // places [first, first + count)
};
// Tiles of at most `tile_rows` that so many pairs can come to.
constexpr int64_t MaxExpertTiles(int64_t num_pairs, int num_experts, int tile_rows) {
  return num_pairs / tile_rows + (num_pairs < num_experts ? num_pairs : num_experts);
}

struct SortPairsParams {
  const int32_t* experts;  // [num_pairs]
  int32_t* pairs;          // [num_pairs]: the pair at each place
  int32_t* places;         // [num_pairs]: the place of each pair
  ExpertTile* tiles;       // [num_tiles]: all are written
  int num_pairs, num_experts, tile_rows, num_tiles;
};
void SortPairs(const SortPairsParams& params, cudaStream_t stream);

// All of it in one kernel, with the scores too, for up to kFewRoutedRows rows.
inline constexpr int kFewRoutedRows = 16;
struct RouteFewParams {
  const __nv_bfloat16* in;      // [num_rows, hidden_size]
  const __nv_bfloat16* router;  // [num_experts, hidden_size]
  int hidden_size;
  int32_t* ticket;  // 0, before and after
  RouteParams route;
  SortPairsParams sort;
};
void RouteFew(const RouteFewParams& params, cudaStream_t stream);

struct CombineParams {
  const __nv_bfloat16* in;  // [num_pairs, hidden_size], by place
  const int32_t* places;
  const float* shares;
  __nv_bfloat16* out;  // [num_rows, hidden_size]
  int num_rows, hidden_size, experts_per_token;
  bool accumulates;  // out += sum
};
void Combine(const CombineParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
