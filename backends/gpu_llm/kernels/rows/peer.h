// What the GPUs of one model do together, each on its own stream: sums, rows of logits, tokens. All
// write and read each other's memory. Every GPU starts the same kernels in the same order; a kernel
// waits for the others' of the same name.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/model/sharding.h"

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
  uint64_t limit_ns;  // of one wait
  // [2 turns][count senders][kMailTiles * kPeerThreads]; of SumRows by itself: its blocks have
  // other packets
  uint4* mail[kMaxGpus];
  uint4* row_mail[kMaxGpus];
  uint32_t* flags[kMaxGpus];          // [kPeerBlocks][count senders]: turns at which blocks met
  uint32_t* mail_turns;               // [kMailTiles], of this GPU
  uint32_t* row_mail_turns;           // [kMailTiles]
  uint32_t* meet_turns;               // [kPeerBlocks], of this GPU
  __nv_bfloat16* parts[kMaxGpus];     // what is to be summed
  __nv_bfloat16* residual[kMaxGpus];  // equal on all
  __nv_bfloat16* normed[kMaxGpus];
  float* logits;  // of rank 0
  int32_t* last_tokens[kMaxGpus];
};

// residual += sum of parts over the GPUs, `count` elements, in the same order of additions on every
// GPU; or the sum takes the parts' place on all, and count is a multiple of 8.
enum class SumInto : int32_t { kResidual, kParts };
enum class SumPath : int32_t {
  kAuto,
  kMail,  // every GPU sends its part to all others; more than PeerMailElements() meet instead
  kMeet,  // every GPU sums a share, from and to all
};
int64_t PeerMailElements();
void SumOverPeers(const Peers& peers, int64_t count, SumInto into, SumPath path,
                  cudaStream_t stream);

// residual += sum of parts, and normed = the RMS norm of the residual's rows, on all GPUs; without
// a weight no norm. With one, and by meeting, a GPU has only its share of the residual's rows
// after: the last sum over these rows comes without one, and leaves the residual equal on all.
struct SumRowsParams {
  const __nv_bfloat16* weight;  // [hidden_size]; null: no norm
  int num_rows;
  int hidden_size;  // a multiple of 8, at most kMaxSumRowSize
  float epsilon;
};
inline constexpr int kMaxSumRowSize = 16384;
void SumRows(const Peers& peers, const SumRowsParams& params, SumPath path, cudaStream_t stream);

// Columns [first, first + width) of rank 0's logits, [num_rows, vocab_size], from
// `own` [num_rows, width] of each GPU. Multiples of 4.
void GatherLogits(const Peers& peers, const float* own, int num_rows, int64_t first, int64_t width,
                  int64_t vocab_size, cudaStream_t stream);

// last_tokens [count] of rank 0, to all.
void ShareTokens(const Peers& peers, int count, cudaStream_t stream);

}  // namespace nereid::gpu
