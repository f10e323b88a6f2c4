// Equal shares of a product's work for the blocks of threads of a launch. The work is the steps of
// all tiles of outputs, one tile after the other; a step is a part of the depth. A block's share
// begins and ends anywhere in a tile, so its first and its last tile may be parts. The sums of a
// tile's parts are added by the block whose part ends last, in the order of the depth: no block
// waits, and equal calls give equal results. Device code only.
#pragma once

#include <cstdint>

#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// Steps [begin, end) of a tile.
struct Piece {
  int tile, begin, end;
};

// The number of steps times that of blocks is below 2^31.
class EqualShares {
 public:
  __device__ __forceinline__ EqualShares(int num_tiles, int steps_a_tile)
      : steps_a_tile_(steps_a_tile), num_steps_(num_tiles * steps_a_tile) {}
  __device__ __forceinline__ int steps_a_tile() const { return steps_a_tile_; }
  // The first step of a block's share, counted from the first tile's.
  __device__ __forceinline__ int Begin(int block) const {
    return static_cast<int>(static_cast<unsigned>(block * num_steps_) / gridDim.x);
  }
  // The block that has a step.
  __device__ __forceinline__ int BlockOf(int step) const {
    return static_cast<int>(((step + 1) * gridDim.x - 1) / static_cast<unsigned>(num_steps_));
  }
  // The piece that begins at step `at` of a share that ends before `end`.
  __device__ __forceinline__ Piece PieceAt(int at, int end) const {
    const int tile = at / steps_a_tile_, first = tile * steps_a_tile_;
    return {tile, at - first, min(steps_a_tile_, end - first)};
  }

 private:
  int steps_a_tile_, num_steps_;
};

// For a piece that is not a whole tile. All threads of a warp call it; the warps with one number in
// the tile's blocks have a ticket, 0 before and after a launch. write(block, which) stores this
// thread's sums in slot 0 or 1 of the block. In the last of the tile's blocks the function returns
// true, after read(block, which, is_first) has been called for the sums of each piece in order.
template <typename Write, typename Read>
__device__ __forceinline__ bool AddPieces(const EqualShares& shares, const Piece& piece,
                                          int32_t* tickets, int warps_a_block, const Write& write,
                                          const Read& read) {
  const int first_step = piece.tile * shares.steps_a_tile(), block = static_cast<int>(blockIdx.x);
  const int first = shares.BlockOf(first_step),
            last = shares.BlockOf(first_step + shares.steps_a_tile() - 1);
  // A share's last piece has the beginning of its tile.
  write(block, piece.begin == 0 ? 1 : 0);
  __syncwarp();
  int32_t* ticket = tickets + first * warps_a_block + static_cast<int>(threadIdx.x) / 32;
  int arrived = 0;
  if (threadIdx.x % 32 == 0) {
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
                 : "=r"(arrived)
                 : "l"(ticket)
                 : "memory");
    if (arrived == last - first) *ticket = 0;
  }
  if (__shfl_sync(0xffffffffu, arrived, 0) != last - first) return false;
  __syncwarp();  // all lanes see what the first one has acquired
  for (int from = first; from <= last; ++from) read(from, from == first ? 1 : 0, from == first);
  return true;
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
