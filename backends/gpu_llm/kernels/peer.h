// What the GPUs of one model do together, each on its own stream: sums, rows of logits, tokens. All
// write and read each other's memory. Every GPU starts the same kernels in the same order; a kernel
// waits for the others' of the same name.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu_llm/model/sharding.h"

namespace nereid::gpu {

// In memory of the host that all GPUs see. Once `stops` is set nobody waits any more, and what
// kernels leave behind is worth nothing.
struct PeerControl {
  uint32_t stops;
  uint32_t was_late[kMaxGpus];  // this GPU waited for longer than the limit
};

inline constexpr int kPeerThreads = 512;
inline constexpr int kPeerBlocks = 128;  // at most, of kernels whose blocks meet
// Mail: packets of 16 bytes, of which 8 are values and 8 say twice which turn they belong to.
inline constexpr int kMailTiles = 128;  // of kPeerThreads packets

// What a GPU must know of the others; arrays by rank.
struct Peers {
  int32_t rank, count;
  PeerControl* control;
  uint64_t limit_ns;                  // of one wait
  uint4* mail[kMaxGpus];              // [2 turns][count senders][kMailTiles * kPeerThreads]
  uint32_t* flags[kMaxGpus];          // [kPeerBlocks][count senders]: turns at which blocks met
  uint32_t* mail_turns;               // [kMailTiles], of this GPU
  uint32_t* meet_turns;               // [kPeerBlocks], of this GPU
  __nv_bfloat16* parts[kMaxGpus];     // what is to be summed
  __nv_bfloat16* residual[kMaxGpus];  // equal on all
  float* logits;                      // of rank 0
  int32_t* last_tokens[kMaxGpus];
};

// residual += sum of parts over the GPUs, `count` elements, in the same order of additions on every
// GPU; or the sum takes the parts' place on all, and count is a multiple of 8.
enum class SumInto : int32_t { kResidual, kParts };
enum class SumPath : int32_t {
  kAuto,
  kMail,  // every GPU sends its part to all others; at most PeerMailElements()
  kMeet,  // every GPU sums a share, from and to all
};
int64_t PeerMailElements();
void SumOverPeers(const Peers& peers, int64_t count, SumInto into, SumPath path,
                  cudaStream_t stream);

// Columns [first, first + width) of rank 0's logits, [num_rows, vocab_size], from
// `own` [num_rows, width] of each GPU. Multiples of 4.
void GatherLogits(const Peers& peers, const float* own, int num_rows, int64_t first, int64_t width,
                  int64_t vocab_size, cudaStream_t stream);

// last_tokens [count] of rank 0, to all.
void ShareTokens(const Peers& peers, int count, cudaStream_t stream);

}  // namespace nereid::gpu
