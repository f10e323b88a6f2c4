// Sizes of the GEMM kernels that launchers, the registry (kernel_registry.h) and tests share. Those
// of the portable tile GEMM are in kernels/gemm/tile_gemm_shape.h. Free of CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/gpu_llm/kernels/gemm/weight_format.h"

namespace nereid::gpu {

// What a GEMM does with its result.
enum class GemmEpilogue : int32_t {
  kBf16,      // out [num_rows, num_outputs] bf16
  kFloat,     // the same in float
  kAdd,       // out += product, bf16
  kSiluGate,  // weights as in activation.h; out [num_rows, num_outputs / 2] bf16
  kActivate,  // out = act(product + bias) [num_rows, num_outputs] bf16
  kGate,      // kSiluGate with biases and with the activation of the call
};

inline constexpr int kStreamMaxRows = 16;  // of a StreamGemm()

// Rows of a tile of GroupedGemm().
inline constexpr int kSmallExpertTile = 16;  // for short steps
inline constexpr int kLargeExpertTile = 64;

// Most rows of a tile of StreamExperts(). In the native form, 128 is for bf16 only.
inline constexpr int kStreamTileRows[] = {8, 16, 32, 64, 128};

// The native StreamExperts() divides the depth of int4 weights into slices from so many columns on.
// Slices of less depth would end before they are worth the addition of their sums.
inline constexpr int kMinSlicedDepth = 4096;

// The native split-K GEMM gives its blocks equal shares of bf16 weights for up to so many rows. For
// more, slices are faster: the blocks of a cluster add their sums in shared memory.
inline constexpr int kShareRows = 8;
inline constexpr int kShareOutputs = 256;  // of a tile
// Floats of SplitScratch::partials for them: the sums of two pieces of tiles for each block.
constexpr int64_t NumSharePartials(int num_processors) {
  return int64_t{2} * kShareOutputs * kShareRows * num_processors;
}

}  // namespace nereid::gpu

// The native stream GEMM.
namespace nereid::gpu::stream_gemm_shape {

inline constexpr int kTileOutputs = 16;
inline constexpr int kMaxStages = 12;
// More than half of a multiprocessor's shared memory. Otherwise two blocks could share one
// multiprocessor while another one is idle, and the tiles would finish later.
inline constexpr int kMinSharedBytes = 115 * 1024, kMaxSharedBytes = 220 * 1024;
inline constexpr int kMaxRingBytes = 112 * 1024;
inline constexpr int kMaxSharedInput =
    136 * 1024;  // without a norm; a larger input is read from global memory

// Bytes of an input row in shared memory. The 64 bytes of padding avoid bank conflicts of adjacent
// rows.
constexpr int InputRowBytes(int depth) {
  return depth * 2 + 64;
}

// Shape of a stage of the ring. kSteps: steps of 32 columns for each warp.
template <WeightFormat kFormat>
struct StageShape {
  // fp8 needs more instructions for each byte.
  static constexpr int kWarps = kFormat == WeightFormat::kFp8 ? 16 : 8, kProducers = 4;
  // 16 row segments, with a pitch that avoids bank conflicts in a warp's reads
  static constexpr int kRowBytes = 512;
  static constexpr int kElementBytes = kFormat == WeightFormat::kBf16 ? 2 : 1;
  static constexpr int kPitch = kRowBytes + 32 * kElementBytes;
  static constexpr int kColumns = kRowBytes / kElementBytes;
  static constexpr int kSteps = kColumns / (32 * kWarps);
  static constexpr int kStepStride = 32 * kWarps, kWarpStride = 32;  // columns
  static constexpr int Bytes(int) { return kTileOutputs * kPitch; }
};
template <>
struct StageShape<WeightFormat::kInt4> {  // one block for each warp
  static constexpr int kWarps = 16, kProducers = 1;
  static constexpr int kColumns = kInt4BlockColumns * kWarps;
  static constexpr int kSteps = kInt4BlockColumns / 32;
  static constexpr int kStepStride = 32, kWarpStride = kInt4BlockColumns;
  static constexpr int Bytes(int scales_per_block) {
    return kWarps * Int4BlockBytes(scales_per_block);
  }
};

// The stream GEMM multiplies inputs of up to so many rows by int4 weights as bytes, if they fit in
// shared memory (stream_bytes.cuh). There the part of a row that belongs to a block of weights
// takes two bytes a column, and has a scale and four sums.
inline constexpr int kByteRows = 4;
constexpr int ByteInputBytes(int depth, int num_rows) {
  const int num_blocks = NumInt4Blocks(depth);
  return num_blocks * num_rows * (2 * kInt4BlockColumns + 4 + 16);
}

struct StreamGemmPlan {
  bool in_bytes;   // the input is in shared memory, as bytes (int4_bytes.cuh)
  bool in_shared;  // the input is in shared memory, in bf16
  int input_bytes, num_stages;
};
template <WeightFormat kFormat>
constexpr StreamGemmPlan PlanFor(const WeightMatrix& weights, int num_rows, bool norms) {
  using Stage = StageShape<kFormat>;
  StreamGemmPlan plan = {};
  const int bytes = ByteInputBytes(weights.depth, num_rows);
  plan.in_bytes =
      kFormat == WeightFormat::kInt4 && num_rows <= kByteRows && bytes <= kMaxSharedInput;
  plan.input_bytes = plan.in_bytes ? bytes : num_rows * InputRowBytes(weights.depth);
  plan.in_shared = !plan.in_bytes && (norms || plan.input_bytes <= kMaxSharedInput);
  if (!plan.in_bytes && !plan.in_shared) plan.input_bytes = 0;
  // Partial sums, sums of squares, barriers.
  const int fixed = plan.input_bytes + (num_rows <= 8 ? 1 : 2) * 1056 * Stage::kWarps + 256;
  const int stage_bytes = Stage::Bytes(weights.scales_per_block);
  plan.num_stages =
      std::min({(kMaxSharedBytes - fixed) / stage_bytes, kMaxStages, kMaxRingBytes / stage_bytes});
  return plan;
}

}  // namespace nereid::gpu::stream_gemm_shape
