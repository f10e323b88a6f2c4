// Collective operations of the GPUs that run one model: all-reduce, gathering of logits, broadcast
// of tokens. Each GPU works on its own stream and accesses the memory of the others. Every GPU
// launches the same kernels in the same order, and a kernel waits for its counterparts.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/gpu_llm/model/sharding.h"

namespace nereid::gpu {

// In pinned host memory that all GPUs can access. Once `is_stopped` is set no kernel waits any
// more, and the results of the kernels are invalid.
struct PeerControl {
  uint32_t is_stopped;
  uint32_t timed_out[kMaxGpus];  // set when this GPU waited longer than the timeout
};

inline constexpr int kPeerThreads = 512;
inline constexpr int kPeerBlocks = 128;  // maximum, of kernels whose blocks synchronise
// One-shot packets have 16 bytes: 8 bytes of values, and the 4-byte epoch twice.
inline constexpr int kPacketTiles = 128;  // each of kPeerThreads packets

// Pointers of one GPU to the memory of all GPUs; arrays are indexed by rank.
struct Peers {
  int32_t rank, count;
  PeerControl* control;
  uint64_t timeout_ns;  // of one wait
  // [2 epochs][count senders][kPacketTiles * kPeerThreads] each. AllReduceNorm has its own buffers,
  // because its blocks handle other packets.
  uint4* packet_buffers[kMaxGpus];
  uint4* norm_packet_buffers[kMaxGpus];
  uint32_t* flags[kMaxGpus];     // [kPeerBlocks][count senders]: epoch at which the block arrived
  uint32_t* packet_epochs;       // [kPacketTiles], of this GPU
  uint32_t* norm_packet_epochs;  // [kPacketTiles], of this GPU
  uint32_t* barrier_epochs;      // [kPeerBlocks], of this GPU
  __nv_bfloat16* partials[kMaxGpus];  // input: each GPU's partial sums
  __nv_bfloat16* residual[kMaxGpus];  // equal on all GPUs
  __nv_bfloat16* normed[kMaxGpus];
  float* logits;  // of rank 0
  int32_t* last_tokens[kMaxGpus];
};

// kResidual: residual += sum of the partial sums over the GPUs. kInPlace: the sum replaces the
// partial sums on all GPUs, and `count` is a multiple of 8. The order of additions is the same on
// every GPU. `count` is the number of elements.
enum class AllReduceTarget : int32_t { kResidual, kInPlace };
enum class AllReduceAlgorithm : int32_t {
  kAuto,
  kOneShot,  // every GPU sends its partial sums to all; two-shot above MaxOneShotElements()
  kTwoShot,  // every GPU reads its share from all and writes the sum to all
};
inline namespace NEREID_KERNEL_FORM {
int64_t MaxOneShotElements();
void AllReduce(const Peers& peers, int64_t count, AllReduceTarget target,
               AllReduceAlgorithm algorithm, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// residual += sum of the partial sums, and normed = RMS norm of the residual's rows, on all GPUs.
// Without a weight the norm is skipped. After two-shot with a weight, a GPU has only its share of
// the residual's rows. The last call for these rows is made without a weight and makes the residual
// equal on all GPUs.
struct AllReduceNormParams {
  const __nv_bfloat16* weight;  // [hidden_size]; null: no norm
  int num_rows;
  int hidden_size;  // a multiple of 8, at most kMaxAllReduceNormSize
  float epsilon;
};
inline constexpr int kMaxAllReduceNormSize = 16384;
inline namespace NEREID_KERNEL_FORM {
void AllReduceNorm(const Peers& peers, const AllReduceNormParams& params,
                   AllReduceAlgorithm algorithm, cudaStream_t stream);

// Writes `own` [num_rows, width] of each GPU to columns [first, first + width) of rank 0's logits
// [num_rows, vocab_size]. `first`, `width` and `vocab_size` are multiples of 4.
void GatherLogits(const Peers& peers, const float* own, int num_rows, int64_t first, int64_t width,
                  int64_t vocab_size, cudaStream_t stream);

// Copies last_tokens [count] of rank 0 to all GPUs.
void BroadcastTokens(const Peers& peers, int count, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
