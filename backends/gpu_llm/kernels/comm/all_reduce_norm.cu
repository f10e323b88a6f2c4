// All-reduce of rows over GPUs, fused with the RMS norm that follows (algorithms: all_reduce.cu).
// With one-shot a cluster of blocks handles a row, so that its packets pass several multiprocessors
// at once. With two-shot a block handles whole rows.
//
// The norm adds the squares in an order that does not depend on the algorithm or the number of
// blocks: first 256 values by the lanes of a warp, then these sums by the lanes of each warp.
//
// Four H200, bf16 rows of 8,192: one-shot takes 4.1 us for one row and 8.3 us for 8, two-shot 9.7
// and 10.2 us. The latency of the link bounds these times, not the bytes (8 rows take 0.9 us at 450
// GB/s per direction).
#include <algorithm>

#include "backends/gpu_llm/kernels/comm/peer_sync.cuh"
#include "backends/gpu_llm/kernels/device/cluster.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kWarp = 32;
constexpr int kMaxChunks = kMaxAllReduceNormSize / kChunkValues;
constexpr int kMaxGroups = kMaxChunks / kWarp;  // warp-sized groups of chunks in a row
constexpr int kMaxClusterBlocks = 8;            // of one row
// Maximum number of blocks of all rows together, small enough that an otherwise idle GPU runs all
// of them at once. If it does not, blocks start in the order of rows on all GPUs, so the first row
// that is not summed yet runs on all of them.
constexpr int kMaxOneShotBlocks = 128;
// Maximum number of chunks of a thread. One is usually enough, which halves the registers.
constexpr int kThreadChunks = kMaxChunks / kPeerThreads;

// A block's slice of a row. A thread has chunk Chunk(c) for each c. The chunks of a warp are
// contiguous and begin at a multiple of kWarp.
struct RowSlice {
  int first, end;  // in chunks

  __device__ int Chunk(int c) const {
    return first + static_cast<int>(threadIdx.x) + c * static_cast<int>(blockDim.x);
  }
  // Whether the warp has any chunk; the same for all of its lanes.
  __device__ bool HasWarp(int c) const {
    return Chunk(c) - static_cast<int>(threadIdx.x % kWarp) < end;
  }
};

template <int kChunks>
struct RowValues {
  float values[kChunks][kChunkValues];
  uint4 residual[kChunks];  // loaded while the thread waits for its peers
};

template <int kChunks>
__device__ __forceinline__ void LoadSlice(const RowSlice& slice, const bf16* row,
                                          uint4 (&chunks)[kChunks]) {
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (slice.Chunk(c) < slice.end) chunks[c] = reinterpret_cast<const uint4*>(row)[slice.Chunk(c)];
  }
}

// Calls publish(group, sum) on all lanes with the sum of squares of each of the warp's groups.
template <int kChunks, typename Publish>
__device__ __forceinline__ void SumSquares(const RowSlice& slice, const RowValues<kChunks>& row,
                                           const Publish& publish) {
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (!slice.HasWarp(c)) break;
    float sum = 0.0f;
    if (slice.Chunk(c) < slice.end) {
#pragma unroll
      for (const float value : row.values[c]) sum += value * value;
    }
    publish(slice.Chunk(c) / kWarp, WarpSum(sum));
  }
}

// Normalizes the slice and calls store(i, packed) for each chunk i. `groups`: the sums of squares
// of the whole row.
template <int kChunks, typename Store>
__device__ __forceinline__ void NormSlice(const AllReduceNormParams& s, const RowSlice& slice,
                                          const RowValues<kChunks>& row,
                                          const uint4 (&weight)[kChunks], const float* groups,
                                          const Store& store) {
  const int num_groups = (s.hidden_size / kChunkValues + kWarp - 1) / kWarp;
  float sum = 0.0f;
#pragma unroll
  for (int first = 0; first < kMaxGroups; first += kWarp) {
    const int group = first + static_cast<int>(threadIdx.x % kWarp);
    if (group < num_groups) sum += groups[group];
  }
  const float scale = rsqrtf(WarpSum(sum) / static_cast<float>(s.hidden_size) + s.epsilon);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (slice.Chunk(c) >= slice.end) break;
    float normed[kChunkValues], weights[kChunkValues];
    Unpack8(weight[c], weights);
#pragma unroll
    for (int j = 0; j < kChunkValues; ++j) normed[j] = row.values[c][j] * scale * weights[j];
    store(slice.Chunk(c), Pack8(normed));
  }
}

// Returns the new residual and rounds `sum` to it, so that the norm sees the bf16 values that later
// layers read.
__device__ __forceinline__ uint4 AddResidual(uint4 residual, float (&sum)[kChunkValues]) {
  float before[kChunkValues];
  Unpack8(residual, before);
#pragma unroll
  for (int j = 0; j < kChunkValues; ++j) sum[j] += before[j];
  const uint4 packed = Pack8(sum);
  Unpack8(packed, sum);
  return packed;
}

__device__ __forceinline__ void AddChunk(uint4 chunk, float (&sum)[kChunkValues]) {
  float values[kChunkValues];
  Unpack8(chunk, values);
#pragma unroll
  for (int j = 0; j < kChunkValues; ++j) sum[j] += values[j];
}

// A cluster of `num_blocks` blocks handles a row. Chunk i of eight values is sent as packets 2 i
// and 2 i + 1. The blocks of a row share its epoch.
template <int kMaxCount, int kChunks>
__global__ void __launch_bounds__(kPeerThreads)
    OneShotAllReduceNormKernel(Peers p, AllReduceNormParams s, int num_blocks) {
  __shared__ float groups[kMaxGroups];
  ClusterArrive();
  LaunchNext();
  const int chunks = s.hidden_size / kChunkValues;
  const int at_row = static_cast<int>(blockIdx.x) / num_blocks;
  const int at_block = static_cast<int>(blockIdx.x) % num_blocks;
  const int share = ((chunks + num_blocks - 1) / num_blocks + kWarp - 1) / kWarp * kWarp;
  const RowSlice slice = {at_block * share, min(chunks, (at_block + 1) * share)};
  uint4 weight[kChunks];
  if (s.weight != nullptr) LoadSlice(slice, s.weight, weight);
  WaitForPrevious();
  const uint32_t epoch = p.norm_packet_epochs[at_row] + 1;
  const int64_t first_buffer = int64_t{epoch & 1} * p.count;
  const int64_t first_packet = int64_t{at_row} * chunks * 2;
  const int64_t row_at = int64_t{at_row} * s.hidden_size;
  bf16* residual = p.residual[p.rank] + row_at;
  RowValues<kChunks> row;
  uint4 own[kChunks];
  LoadSlice(slice, p.partials[p.rank] + row_at, own);
  LoadSlice(slice, residual, row.residual);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int i = slice.Chunk(c);
    if (i >= slice.end) break;
#pragma unroll
    for (int next = 1; next < kMaxCount; ++next) {
      if (next >= p.count) break;
      const int to = (p.rank + next) % p.count;
      uint4* buffer = p.norm_packet_buffers[to] + (first_buffer + p.rank) * kPacketsPerSender +
                      first_packet + 2 * i;
      StoreVolatile(buffer, {own[c].x, epoch, own[c].y, epoch});
      StoreVolatile(buffer + 1, {own[c].z, epoch, own[c].w, epoch});
    }
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int i = slice.Chunk(c);
    if (i >= slice.end) break;
    uint4 received[kMaxCount][2];
    WaitUntil(p, [&] {
      bool is_here = true;
#pragma unroll
      for (int from = 0; from < kMaxCount; ++from) {
        if (from >= p.count || from == p.rank) continue;
        const uint4* buffer = p.norm_packet_buffers[p.rank] +
                              (first_buffer + from) * kPacketsPerSender + first_packet + 2 * i;
        received[from][0] = LoadVolatile(buffer);
        received[from][1] = LoadVolatile(buffer + 1);
      }
#pragma unroll
      for (int from = 0; from < kMaxCount; ++from) {
        if (from >= p.count || from == p.rank) continue;
        is_here = is_here && received[from][0].y == epoch && received[from][0].w == epoch &&
                  received[from][1].y == epoch && received[from][1].w == epoch;
      }
      return is_here;
    });
#pragma unroll
    for (float& value : row.values[c]) value = 0.0f;
#pragma unroll
    for (int from = 0; from < kMaxCount; ++from) {
      if (from >= p.count) break;
      const uint4 sent = {received[from][0].x, received[from][0].z, received[from][1].x,
                          received[from][1].z};
      AddChunk(from == p.rank ? own[c] : sent, row.values[c]);
    }
    reinterpret_cast<uint4*>(residual)[i] = AddResidual(row.residual[c], row.values[c]);
  }
  __syncwarp();  // lanes diverge while they wait for packets, cluster barriers need converged warps
  ClusterWait();  // all blocks of the row run, so that their shared memory is accessible
  if (s.weight != nullptr) {
    const auto here = static_cast<uint32_t>(__cvta_generic_to_shared(groups));
    SumSquares(slice, row, [&](int group, float sum) {
      const int to = static_cast<int>(threadIdx.x % kWarp);
      if (to < num_blocks) StoreInCluster(MapToClusterBlock(here + group * 4, to), sum);
    });
  }
  ClusterArrive();
  ClusterWait();  // the sums have arrived, and all blocks have read the epoch
  // Rows that this call does not have advance their epoch as well. The position of packets depends
  // on the row size, and old packets of another size must not match this epoch.
  const int first_row = at_row + static_cast<int>(threadIdx.x) * s.num_rows;
  for (int i = at_block == 0 ? first_row : kPacketTiles; i < kPacketTiles;
       i += static_cast<int>(blockDim.x) * s.num_rows)
    p.norm_packet_epochs[i] = epoch;
  if (s.weight != nullptr) {
    uint4* normed = reinterpret_cast<uint4*>(p.normed[p.rank] + row_at);
    NormSlice(s, slice, row, weight, groups, [&](int i, uint4 packed) { normed[i] = packed; });
  }
}

// Each block handles rows of this GPU's share.
template <int kMaxCount, int kChunks>
__global__ void __launch_bounds__(kPeerThreads)
    TwoShotAllReduceNormKernel(Peers p, AllReduceNormParams s) {
  __shared__ float groups[kMaxGroups];
  LaunchNext();
  const RowSlice slice = {0, s.hidden_size / kChunkValues};
  uint4 weight[kChunks];
  if (s.weight != nullptr) LoadSlice(slice, s.weight, weight);
  WaitForPrevious();
  const uint32_t epoch = p.barrier_epochs[blockIdx.x];
  const int end = static_cast<int>(int64_t{s.num_rows} * (p.rank + 1) / p.count);
  const int first = static_cast<int>(int64_t{s.num_rows} * p.rank / p.count);
  const int own_first = first + static_cast<int>(blockIdx.x);
  RowValues<kChunks> row;
  if (own_first < end)
    LoadSlice(slice, p.residual[p.rank] + int64_t{own_first} * s.hidden_size, row.residual);
  SyncPeers(p, epoch + 1);
  for (int at = own_first; at < end; at += gridDim.x) {
    const int64_t row_at = int64_t{at} * s.hidden_size;
    if (at != own_first) LoadSlice(slice, p.residual[p.rank] + row_at, row.residual);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int i = slice.Chunk(c);
      if (i >= slice.end) break;
      uint4 partials[kMaxCount];
#pragma unroll
      for (int from = 0; from < kMaxCount; ++from) {
        if (from >= p.count) break;
        partials[from] =
            LoadVolatile(reinterpret_cast<const uint4*>(p.partials[from] + row_at) + i);
      }
#pragma unroll
      for (float& value : row.values[c]) value = 0.0f;
#pragma unroll
      for (int from = 0; from < kMaxCount; ++from) {
        if (from >= p.count) break;
        AddChunk(partials[from], row.values[c]);
      }
      const uint4 packed = AddResidual(row.residual[c], row.values[c]);
      reinterpret_cast<uint4*>(p.residual[p.rank] + row_at)[i] = packed;
      if (s.weight != nullptr) continue;
      for (int next = 1; next < p.count; ++next) {
        const int to = (p.rank + next) % p.count;
        reinterpret_cast<uint4*>(p.residual[to] + row_at)[i] = packed;
      }
    }
    if (s.weight == nullptr) continue;
    SumSquares(slice, row, [&](int group, float sum) {
      if (threadIdx.x % kWarp == 0) groups[group] = sum;
    });
    __syncthreads();
    NormSlice(s, slice, row, weight, groups, [&](int i, uint4 packed) {
#pragma unroll
      for (int to = 0; to < kMaxCount; ++to) {
        if (to >= p.count) break;
        reinterpret_cast<uint4*>(p.normed[to] + row_at)[i] = packed;
      }
    });
    __syncthreads();  // before the next row overwrites the sums
  }
  SyncPeers(p, epoch + 2);
  if (threadIdx.x == 0) p.barrier_epochs[blockIdx.x] = epoch + 2;
}

// `is_short`: a thread has one chunk.
template <int kMaxCount>
auto OneShotKernel(bool is_short) {
  return is_short ? OneShotAllReduceNormKernel<kMaxCount, 1>
                  : OneShotAllReduceNormKernel<kMaxCount, kThreadChunks>;
}
template <int kMaxCount>
auto TwoShotKernel(bool is_short) {
  return is_short ? TwoShotAllReduceNormKernel<kMaxCount, 1>
                  : TwoShotAllReduceNormKernel<kMaxCount, kThreadChunks>;
}

void LaunchOneShotNorm(const Peers& peers, const AllReduceNormParams& params, cudaStream_t stream) {
  int num_blocks = kMaxClusterBlocks;
  while (num_blocks > 1 && params.num_rows * num_blocks > kMaxOneShotBlocks) num_blocks /= 2;
  const int chunks = params.hidden_size / kChunkValues;
  const int share = (chunks + num_blocks - 1) / num_blocks;
  const int threads = std::min(kPeerThreads, (share + kWarp - 1) / kWarp * kWarp);
  const bool is_short = share <= threads;
  const auto kernel = peers.count <= 2   ? OneShotKernel<2>(is_short)
                      : peers.count <= 4 ? OneShotKernel<4>(is_short)
                                         : OneShotKernel<8>(is_short);
  LaunchInClusters(kernel, num_blocks, params.num_rows * num_blocks, threads, stream, peers, params,
                   num_blocks);
}

}  // namespace

void AllReduceNorm(const Peers& peers, const AllReduceNormParams& params,
                   AllReduceAlgorithm algorithm, cudaStream_t stream) {
  if (params.num_rows == 0) return;
  const int64_t count = int64_t{params.num_rows} * params.hidden_size;
  if (ResolveAlgorithm(peers, count, algorithm) == AllReduceAlgorithm::kOneShot &&
      params.num_rows <= kPacketTiles) {
    LaunchOneShotNorm(peers, params, stream);
    return;
  }
  const bool is_short = params.hidden_size <= kPeerThreads * kChunkValues;
  const auto kernel = peers.count <= 2   ? TwoShotKernel<2>(is_short)
                      : peers.count <= 4 ? TwoShotKernel<4>(is_short)
                                         : TwoShotKernel<8>(is_short);
  const int rows = (params.num_rows + peers.count - 1) / peers.count;
  Launch(kernel, std::min(rows, kPeerBlocks), kPeerThreads, 0, stream, peers, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
