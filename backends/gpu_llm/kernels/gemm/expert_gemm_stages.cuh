// What the experts' GEMM (expert_gemm.cuh) is made of: formats of the weights, the shape of a
// stage, the items that clusters take in turn, and copies to a cluster's blocks. Device code only.
#pragma once

#include <cuda.h>

#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/cluster.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/wgmma.cuh"
#include "backends/gpu_llm/kernels/device/wgmma_fp8.cuh"
#include "backends/gpu_llm/kernels/gemm/expert_gemm.h"

namespace nereid::gpu::NEREID_KERNEL_FORM::expert_gemm {

constexpr int kCluster = 2;                        // blocks of threads
constexpr int kGroups = 2;                         // consumer groups of a block
constexpr int kGroupOutputs = 64;                  // the rows of wgmma's operand a
constexpr int kOutputs = kGroups * kGroupOutputs;  // of a block
constexpr int kItemOutputs = kCluster * kOutputs;
constexpr int kConsumers = 128 * kGroups, kThreads = kConsumers + 128;
constexpr int kStageRowBytes = 128;  // of a row of a stage: the widest swizzle of wgmma
constexpr int kRowStep = 32;         // numbers of rows that the kernel is compiled for

// `in` has one map for each number of rows that a block copies: 16, 32, ...
template <int kMaxRows>
struct TensorMaps {
  CUtensorMap weights, in[kMaxRows / kRowStep];
};

// A format of the weights:
//   kElementBytes: of the input
//   kScales: products are multiplied by in_scales and row_scales
//   kHasBlocks: those of a step also by the scales of its blocks
//   kStoresFloats: GemmEpilogue::kFloat is supported
//   kUnpacks: a ring of their own has the weights as they are (weight_format.h), and consumers
//     unpack them to registers. Otherwise a stage has them beside the input, and
//   Multiply(sums, weights, in): sums += weights x in, for 32 bytes of a stage's rows; `weights`
//     and `in` are descriptors
struct Bf16Format {
  static constexpr int kElementBytes = 2;
  static constexpr bool kStoresFloats = true;
  static constexpr bool kScales = false, kHasBlocks = false, kUnpacks = false;
  template <int kCount>
  static __device__ __forceinline__ void Multiply(float (&sums)[kCount], uint64_t weights,
                                                  uint64_t in) {
    Wgmma(sums, weights, in, 1);
  }
};
struct Fp8Format {
  static constexpr int kElementBytes = 1;
  static constexpr bool kStoresFloats = false;
  static constexpr bool kScales = true, kHasBlocks = false, kUnpacks = false;
  template <int kCount>
  static __device__ __forceinline__ void Multiply(float (&sums)[kCount], uint64_t weights,
                                                  uint64_t in) {
    WgmmaFp8(sums, weights, in);
  }
};
struct Fp8BlocksFormat : Fp8Format {
  static constexpr bool kHasBlocks = true;
  static_assert(kStageRowBytes == kFp8BlockColumns);
};
struct Int4Format {
  static constexpr int kElementBytes = 2;
  static constexpr bool kStoresFloats = false;
  static constexpr bool kScales = false, kHasBlocks = false, kUnpacks = true;
};

template <typename Format, int kMaxRows>
struct StageShape {
  static constexpr int kWeightBytes = Format::kUnpacks ? 0 : kOutputs * kStageRowBytes;
  static constexpr int kStageBytes = kWeightBytes + kMaxRows * kStageRowBytes;
  static constexpr int kStages = kMaxRows > 128 ? 4 : kMaxRows > 64 ? 6 : 8;
  // Weights that are unpacked: slots of a block of columns.
  static constexpr int kSlots = Format::kUnpacks ? 5 : 0;
  static constexpr int kSlotBytes = kOutputs / kInt4TileRows * Int4BlockBytes(4);
  static constexpr int kBarriers = 2 * kStages + 2 * kSlots;
  // Where a group's outputs are transposed: so many rows at a time, of kGroupOutputs outputs.
  static constexpr int kStagingRows = kMaxRows < 128 ? kMaxRows : 128;
  static constexpr int kStagingBytes = kStagingRows * kGroupOutputs * 2;
  static constexpr int kStagingOffset = kStages * kStageBytes;
  static constexpr int kSlotsOffset = kStagingOffset + kGroups * kStagingBytes;
  static constexpr int kSharedBytes = kSlotsOffset + kSlots * kSlotBytes + 1024;
};

// A part of an expert's rows, and 256 outputs.
struct Item {
  int expert, first_row, num_rows, first_output;
};

// The items of a cluster, in order: all parts of an expert's rows for the first outputs, then for
// the next outputs, so that the clusters that run at the same time share rows and weights.
template <int kMaxRows>
class ItemCursor {
 public:
  __device__ explicit ItemCursor(const ExpertGemmParams& p)
      : p_(p),
        item_(static_cast<int>(blockIdx.x) / kCluster),
        blocks_((p.weights.num_outputs + kItemOutputs - 1) / kItemOutputs) {
    Load();
    Seek();
  }
  __device__ bool has_item() const { return expert_ < p_.num_experts; }
  __device__ void Advance() {
    item_ += static_cast<int>(gridDim.x) / kCluster;
    Seek();
  }
  __device__ Item item() const {
    const int at = item_ - first_item_, part = at % parts_;
    const int rows = num_rows_ / parts_, num_longer = num_rows_ % parts_;  // parts of a row more
    return {expert_, first_row_ + part * rows + min(part, num_longer),
            rows + (part < num_longer ? 1 : 0), at / parts_ * kItemOutputs};
  }

 private:
  __device__ void Load() {
    const bool is_only = p_.first_rows == nullptr;
    first_row_ = is_only ? 0 : p_.first_rows[expert_];
    num_rows_ = (is_only ? p_.num_rows : p_.first_rows[expert_ + 1]) - first_row_;
    parts_ = (num_rows_ + kMaxRows - 1) / kMaxRows;
  }
  // Finds the expert of the item.
  __device__ void Seek() {
    while (item_ >= first_item_ + parts_ * blocks_) {
      first_item_ += parts_ * blocks_;
      if (++expert_ == p_.num_experts) return;
      Load();
    }
  }

  const ExpertGemmParams& p_;
  int item_, blocks_;
  int expert_ = 0, first_item_ = 0, first_row_ = 0, num_rows_ = 0, parts_ = 0;
};

// Position in the ring of stages.
template <int kStages>
struct StageRing {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void Advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Copies the box of an expert's weights whose first element is at (column, row).
__device__ __forceinline__ void CopyWeights(uint32_t to, const void* map, int column, int row,
                                            int expert, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(expert), "r"(SharedAddress(barrier))
      : "memory");
}
// Copies a box to the same address in both blocks of the cluster, and signals each block's barrier.
__device__ __forceinline__ void CopyToCluster(uint32_t to, const void* map, int column, int row,
                                              uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(SharedAddress(barrier)),
      "h"(static_cast<uint16_t>((1 << kCluster) - 1))
      : "memory");
}
__device__ __forceinline__ void ArriveInCluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Stores four 8 x 8 matrices, transposed.
__device__ __forceinline__ void StoreMatrices(uint32_t address, const uint32_t (&values)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3])
      : "memory");
}

__device__ __forceinline__ uint4 AddBf16(const uint4& a, const uint4& b) {
  float sums[8], values[8];
  Unpack8(a, sums);
  Unpack8(b, values);
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[i] += values[i];
  return Pack8(sums);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::expert_gemm
