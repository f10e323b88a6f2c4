// Sums of rows over GPUs, with the norm that follows (peer.h says by which two ways). By mail a row
// is the work of a cluster of blocks, so that its packets leave and come through several processors
// at once; by meeting a block has whole rows.
//
// The norm adds the squares up in an order that no way and no number of blocks changes: 256 values,
// by the lanes of a warp, then these sums, by the lanes of each warp.
//
// On four H200s rows of 8,192 in bf16 take by mail 4.1 us for one and 8.3 for 8, by meeting 9.7 and
// 10.2: times of trips over the link, not of bytes (8 rows are 0.9 us of a direction's 450 GB/s).
#include <algorithm>

#include "backends/gpu_llm/kernels/device/cluster.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/rows/peer_trip.cuh"

namespace nereid::gpu {
namespace {

constexpr int kWarp = 32;
constexpr int kMaxChunks = kMaxSumRowSize / kChunkValues;
constexpr int kMaxGroups = kMaxChunks / kWarp;  // of chunks, a warp's
constexpr int kMaxRowBlocks = 8;                // of a cluster
// Blocks of all rows together, so few that a GPU of our own runs them all at a time. One that does
// not waits in the order of rows, as on the others: the first row that is not summed runs on all.
constexpr int kMailBlocks = 128;
// Chunks of a thread, at most: most often one is enough, which halves its registers.
constexpr int kThreadChunks = kMaxChunks / kPeerThreads;

// What a thread has of its block's part of a row: chunk Chunk(c) for each c. A warp's chunks are
// neighbours and begin at a multiple of kWarp.
struct RowPart {
  int first, end;  // chunks

  __device__ int Chunk(int c) const {
    return first + static_cast<int>(threadIdx.x) + c * static_cast<int>(blockDim.x);
  }
  // Whether the warp has any; the same for all its lanes.
  __device__ bool HasWarp(int c) const {
    return Chunk(c) - static_cast<int>(threadIdx.x % kWarp) < end;
  }
};

template <int kChunks>
struct RowValues {
  float values[kChunks][kChunkValues];
  uint4 residual[kChunks];  // on its way while others are waited for
};

template <int kChunks>
__device__ __forceinline__ void LoadPart(const RowPart& part, const bf16* row,
                                         uint4 (&chunks)[kChunks]) {
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (part.Chunk(c) < part.end) chunks[c] = reinterpret_cast<const uint4*>(row)[part.Chunk(c)];
  }
}

// Each warp's sums of squares, to what `publish`(group, sum) does with them, on all lanes.
template <int kChunks, typename Publish>
__device__ __forceinline__ void SumSquares(const RowPart& part, const RowValues<kChunks>& row,
                                           const Publish& publish) {
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (!part.HasWarp(c)) break;
    float sum = 0.0f;
    if (part.Chunk(c) < part.end) {
#pragma unroll
      for (const float value : row.values[c]) sum += value * value;
    }
    publish(part.Chunk(c) / kWarp, WarpSum(sum));
  }
}

// The part's norm, to what `store` does with chunk i of it. `groups`: the sums of the whole row.
template <int kChunks, typename Store>
__device__ __forceinline__ void NormPart(const SumRowsParams& s, const RowPart& part,
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
    if (part.Chunk(c) >= part.end) break;
    float normed[kChunkValues], weights[kChunkValues];
    Unpack8(weight[c], weights);
#pragma unroll
    for (int j = 0; j < kChunkValues; ++j) normed[j] = row.values[c][j] * scale * weights[j];
    store(part.Chunk(c), Pack8(normed));
  }
}

// As the residual will be read: what is normed is what bf16 keeps of the sum.
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

// A cluster of `num_blocks` a row, whose chunk i of eight values are packets 2 i and 2 i + 1 of it.
// The row's blocks count its turns together.
template <int kMaxCount, int kChunks>
__global__ void __launch_bounds__(kPeerThreads)
    MailRowsKernel(Peers p, SumRowsParams s, int num_blocks) {
  __shared__ float groups[kMaxGroups];
  ClusterArrive();
  LaunchNext();
  const int chunks = s.hidden_size / kChunkValues;
  const int at_row = static_cast<int>(blockIdx.x) / num_blocks;
  const int at_block = static_cast<int>(blockIdx.x) % num_blocks;
  const int share = ((chunks + num_blocks - 1) / num_blocks + kWarp - 1) / kWarp * kWarp;
  const RowPart part = {at_block * share, min(chunks, (at_block + 1) * share)};
  uint4 weight[kChunks];
  if (s.weight != nullptr) LoadPart(part, s.weight, weight);
  WaitForPrevious();
  const uint32_t turn = p.row_mail_turns[at_row] + 1;
  const int64_t boxes = int64_t{turn & 1} * p.count;
  const int64_t first_packet = int64_t{at_row} * chunks * 2;
  const int64_t row_at = int64_t{at_row} * s.hidden_size;
  bf16* residual = p.residual[p.rank] + row_at;
  RowValues<kChunks> row;
  uint4 own[kChunks];
  LoadPart(part, p.parts[p.rank] + row_at, own);
  LoadPart(part, residual, row.residual);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int i = part.Chunk(c);
    if (i >= part.end) break;
#pragma unroll
    for (int next = 1; next < kMaxCount; ++next) {
      if (next >= p.count) break;
      const int to = (p.rank + next) % p.count;
      uint4* box = p.row_mail[to] + (boxes + p.rank) * kMailBox + first_packet + 2 * i;
      StoreVolatile(box, {own[c].x, turn, own[c].y, turn});
      StoreVolatile(box + 1, {own[c].z, turn, own[c].w, turn});
    }
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int i = part.Chunk(c);
    if (i >= part.end) break;
    uint4 mail[kMaxCount][2];
    WaitUntil(p, [&] {
      bool is_here = true;
#pragma unroll
      for (int from = 0; from < kMaxCount; ++from) {
        if (from >= p.count || from == p.rank) continue;
        const uint4* box = p.row_mail[p.rank] + (boxes + from) * kMailBox + first_packet + 2 * i;
        mail[from][0] = LoadVolatile(box);
        mail[from][1] = LoadVolatile(box + 1);
      }
#pragma unroll
      for (int from = 0; from < kMaxCount; ++from) {
        if (from >= p.count || from == p.rank) continue;
        is_here = is_here && mail[from][0].y == turn && mail[from][0].w == turn &&
                  mail[from][1].y == turn && mail[from][1].w == turn;
      }
      return is_here;
    });
#pragma unroll
    for (float& value : row.values[c]) value = 0.0f;
#pragma unroll
    for (int from = 0; from < kMaxCount; ++from) {
      if (from >= p.count) break;
      const uint4 sent = {mail[from][0].x, mail[from][0].z, mail[from][1].x, mail[from][1].z};
      AddChunk(from == p.rank ? own[c] : sent, row.values[c]);
    }
    reinterpret_cast<uint4*>(residual)[i] = AddResidual(row.residual[c], row.values[c]);
  }
  __syncwarp();   // lanes part where they wait for packets; barriers want whole warps
  ClusterWait();  // the row's blocks run: their shared memory is there
  if (s.weight != nullptr) {
    const auto here = static_cast<uint32_t>(__cvta_generic_to_shared(groups));
    SumSquares(part, row, [&](int group, float sum) {
      const int to = static_cast<int>(threadIdx.x % kWarp);
      if (to < num_blocks) StoreInCluster(AddressInBlock(here + group * 4, to), sum);
    });
  }
  ClusterArrive();
  ClusterWait();  // the sums are here, and all have read the turn
  // Rows that this sum does not have count its turn as well: where rows' packets lie depends on
  // their size, and what another size has left there must not look like this turn's.
  const int first_row = at_row + static_cast<int>(threadIdx.x) * s.num_rows;
  for (int i = at_block == 0 ? first_row : kMailTiles; i < kMailTiles;
       i += static_cast<int>(blockDim.x) * s.num_rows)
    p.row_mail_turns[i] = turn;
  if (s.weight != nullptr) {
    uint4* normed = reinterpret_cast<uint4*>(p.normed[p.rank] + row_at);
    NormPart(s, part, row, weight, groups, [&](int i, uint4 packed) { normed[i] = packed; });
  }
}

// Blocks take rows of this GPU's share.
template <int kMaxCount, int kChunks>
__global__ void __launch_bounds__(kPeerThreads) MeetRowsKernel(Peers p, SumRowsParams s) {
  __shared__ float groups[kMaxGroups];
  LaunchNext();
  const RowPart part = {0, s.hidden_size / kChunkValues};
  uint4 weight[kChunks];
  if (s.weight != nullptr) LoadPart(part, s.weight, weight);
  WaitForPrevious();
  const uint32_t turn = p.meet_turns[blockIdx.x];
  const int end = static_cast<int>(int64_t{s.num_rows} * (p.rank + 1) / p.count);
  const int first = static_cast<int>(int64_t{s.num_rows} * p.rank / p.count);
  const int own_first = first + static_cast<int>(blockIdx.x);
  RowValues<kChunks> row;
  if (own_first < end)
    LoadPart(part, p.residual[p.rank] + int64_t{own_first} * s.hidden_size, row.residual);
  Meet(p, turn + 1);
  for (int at = own_first; at < end; at += gridDim.x) {
    const int64_t row_at = int64_t{at} * s.hidden_size;
    if (at != own_first) LoadPart(part, p.residual[p.rank] + row_at, row.residual);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int i = part.Chunk(c);
      if (i >= part.end) break;
      uint4 parts[kMaxCount];
#pragma unroll
      for (int from = 0; from < kMaxCount; ++from) {
        if (from >= p.count) break;
        parts[from] = LoadVolatile(reinterpret_cast<const uint4*>(p.parts[from] + row_at) + i);
      }
#pragma unroll
      for (float& value : row.values[c]) value = 0.0f;
#pragma unroll
      for (int from = 0; from < kMaxCount; ++from) {
        if (from >= p.count) break;
        AddChunk(parts[from], row.values[c]);
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
    SumSquares(part, row, [&](int group, float sum) {
      if (threadIdx.x % kWarp == 0) groups[group] = sum;
    });
    __syncthreads();
    NormPart(s, part, row, weight, groups, [&](int i, uint4 packed) {
#pragma unroll
      for (int to = 0; to < kMaxCount; ++to) {
        if (to >= p.count) break;
        reinterpret_cast<uint4*>(p.normed[to] + row_at)[i] = packed;
      }
    });
    __syncthreads();  // before the next row's sums
  }
  Meet(p, turn + 2);
  if (threadIdx.x == 0) p.meet_turns[blockIdx.x] = turn + 2;
}

// `is_short`: a thread has one chunk.
template <int kMaxCount>
auto MailKernel(bool is_short) {
  return is_short ? MailRowsKernel<kMaxCount, 1> : MailRowsKernel<kMaxCount, kThreadChunks>;
}
template <int kMaxCount>
auto MeetKernel(bool is_short) {
  return is_short ? MeetRowsKernel<kMaxCount, 1> : MeetRowsKernel<kMaxCount, kThreadChunks>;
}

void MailRows(const Peers& peers, const SumRowsParams& params, cudaStream_t stream) {
  int num_blocks = kMaxRowBlocks;
  while (num_blocks > 1 && params.num_rows * num_blocks > kMailBlocks) num_blocks /= 2;
  const int chunks = params.hidden_size / kChunkValues;
  const int share = (chunks + num_blocks - 1) / num_blocks;
  const int threads = std::min(kPeerThreads, (share + kWarp - 1) / kWarp * kWarp);
  const bool is_short = share <= threads;
  const auto kernel = peers.count <= 2   ? MailKernel<2>(is_short)
                      : peers.count <= 4 ? MailKernel<4>(is_short)
                                         : MailKernel<8>(is_short);
  LaunchInClusters(kernel, num_blocks, params.num_rows * num_blocks, threads, stream, peers, params,
                   num_blocks);
}

}  // namespace

void SumRows(const Peers& peers, const SumRowsParams& params, SumPath path, cudaStream_t stream) {
  if (params.num_rows == 0) return;
  const int64_t count = int64_t{params.num_rows} * params.hidden_size;
  if (Possible(peers, count, path) == SumPath::kMail && params.num_rows <= kMailTiles) {
    MailRows(peers, params, stream);
    return;
  }
  const bool is_short = params.hidden_size <= kPeerThreads * kChunkValues;
  const auto kernel = peers.count <= 2   ? MeetKernel<2>(is_short)
                      : peers.count <= 4 ? MeetKernel<4>(is_short)
                                         : MeetKernel<8>(is_short);
  const int rows = (params.num_rows + peers.count - 1) / peers.count;
  Launch(kernel, std::min(rows, kPeerBlocks), kPeerThreads, 0, stream, peers, params);
}

}  // namespace nereid::gpu
