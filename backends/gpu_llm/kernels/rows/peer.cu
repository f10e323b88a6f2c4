// Two ways to sum. By mail, for few rows: a packet says by itself that it has come, so that a sum
// takes one trip over the link and no fence; mail of a turn lies where that of the turn before the
// last lay, which all have read, since the turn between needed mail from them. By meeting, for
// many: each GPU reads its share of all parts, sums, and writes the sum to all; blocks of the same
// number meet before and after.
//
// Each block counts its turns by itself, in its GPU's memory, so that recorded graphs go on where
// they left off. A turn comes again after 2^32 others.
#include <algorithm>

#include "gpu_llm/kernels/device/device.cuh"
#include "gpu_llm/kernels/device/launch.h"
#include "gpu_llm/kernels/rows/peer.h"

namespace nereid::gpu {
namespace {

constexpr int kMailValues = 4;   // of a packet
constexpr int kChunkValues = 8;  // of a load of 16 bytes
constexpr int kSpinsALook = 4096;

__device__ __forceinline__ uint4 LoadVolatile(const void* address) {
  uint4 value;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address)
               : "memory");
  return value;
}
__device__ __forceinline__ void StoreVolatile(void* address, uint4 value) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ __forceinline__ void StoreRelease(uint32_t* address, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t LoadAcquire(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// Spins until is_ready(); false when the others are not to be waited for any more.
template <typename Ready>
__device__ __forceinline__ bool WaitUntil(const Peers& p, Ready is_ready) {
  for (int spins = 0; spins < kSpinsALook; ++spins) {
    if (is_ready()) return true;
  }
  const uint64_t start = NowNs();
  volatile PeerControl* control = p.control;
  while (true) {
    for (int spins = 0; spins < kSpinsALook; ++spins) {
      if (is_ready()) return true;
    }
    if (control->stops != 0) return false;
    if (NowNs() - start > p.limit_ns) {
      control->was_late[p.rank] = 1;
      control->stops = 1;
      return false;
    }
  }
}

// Blocks of the same number on all GPUs wait for each other. What any of them wrote before can be
// read after.
__device__ __forceinline__ void Meet(const Peers& p, uint32_t turn) {
  __syncthreads();
  const int sender = static_cast<int>(threadIdx.x);
  if (sender < p.count && sender != p.rank) {
    __threadfence_system();
    StoreRelease(p.flags[sender] + blockIdx.x * p.count + p.rank, turn);
    const uint32_t* flag = p.flags[p.rank] + blockIdx.x * p.count + sender;
    // The other may be one turn ahead already.
    WaitUntil(p, [&] { return static_cast<int32_t>(LoadAcquire(flag) - turn) >= 0; });
  }
  __syncthreads();
}

// Four values from `at`, zeros beyond `count`.
__device__ __forceinline__ uint2 LoadFour(const bf16* values, int64_t at, int64_t count) {
  if (at + kMailValues <= count) return *reinterpret_cast<const uint2*>(values + at);
  const auto* bits = reinterpret_cast<const uint16_t*>(values);
  uint32_t four[kMailValues] = {};
  for (int i = 0; at + i < count; ++i) four[i] = bits[at + i];
  return {four[0] | four[1] << 16, four[2] | four[3] << 16};
}

__global__ void __launch_bounds__(kPeerThreads)
    MailSumKernel(Peers p, int64_t count, bool in_place) {
  LaunchNext();
  WaitForPrevious();
  constexpr int64_t kMailBox = int64_t{kMailTiles} * kPeerThreads;
  const uint32_t turn = p.mail_turns[blockIdx.x] + 1;
  const int64_t packet = int64_t{blockIdx.x} * kPeerThreads + threadIdx.x;
  const int64_t at = packet * kMailValues;
  if (at < count) {
    const uint2 own = LoadFour(p.parts[p.rank], at, count);
    const int64_t boxes = int64_t{turn & 1} * p.count;
    for (int i = 1; i < p.count; ++i) {
      const int to = (p.rank + i) % p.count;
      StoreVolatile(p.mail[to] + (boxes + p.rank) * kMailBox + packet, {own.x, turn, own.y, turn});
    }
    float sum[kMailValues] = {};
    for (int from = 0; from < p.count; ++from) {
      uint2 values = own;
      if (from != p.rank) {
        uint4 mail;
        const uint4* box = p.mail[p.rank] + (boxes + from) * kMailBox + packet;
        WaitUntil(p, [&] {
          mail = LoadVolatile(box);
          return mail.y == turn && mail.w == turn;
        });
        values = {mail.x, mail.z};
      }
      sum[0] += LowBf16(values.x), sum[1] += HighBf16(values.x);
      sum[2] += LowBf16(values.y), sum[3] += HighBf16(values.y);
    }
    bf16* residual = (in_place ? p.parts : p.residual)[p.rank] + at;
    if (at + kMailValues <= count) {
      if (!in_place) {
        const uint2 old = *reinterpret_cast<const uint2*>(residual);
        sum[0] += LowBf16(old.x), sum[1] += HighBf16(old.x);
        sum[2] += LowBf16(old.y), sum[3] += HighBf16(old.y);
      }
      *reinterpret_cast<uint2*>(residual) = {PackBf16(sum[0], sum[1]), PackBf16(sum[2], sum[3])};
    } else {
      for (int i = 0; at + i < count; ++i)
        residual[i] = __float2bfloat16(sum[i] + __bfloat162float(residual[i]));
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) p.mail_turns[blockIdx.x] = turn;
}

// Chunk `at` of what all GPUs have summed, with the residual, on all of them. kMaxCount: of GPUs.
template <int kMaxCount, int kUnroll>
__device__ __forceinline__ void SumShare(const Peers& p, int64_t chunks, bool in_place) {
  const int64_t end = chunks * (p.rank + 1) / p.count;
  const int64_t stride = int64_t{gridDim.x} * kPeerThreads;
  int64_t at = chunks * p.rank / p.count + int64_t{blockIdx.x} * kPeerThreads + threadIdx.x;
  for (; at < end; at += kUnroll * stride) {
    uint4 parts[kUnroll][kMaxCount];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (at + u * stride >= end) break;
#pragma unroll
      for (int from = 0; from < kMaxCount; ++from) {
        if (from >= p.count) break;
        parts[u][from] =
            LoadVolatile(reinterpret_cast<const uint4*>(p.parts[from]) + at + u * stride);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t chunk = at + u * stride;
      if (chunk >= end) break;
      float sum[kChunkValues] = {}, values[kChunkValues];
#pragma unroll
      for (int from = 0; from < kMaxCount; ++from) {
        if (from >= p.count) break;
        Unpack8(parts[u][from], values);
#pragma unroll
        for (int i = 0; i < kChunkValues; ++i) sum[i] += values[i];
      }
      if (!in_place) {
        Unpack8(reinterpret_cast<const uint4*>(p.residual[p.rank])[chunk], values);
#pragma unroll
        for (int i = 0; i < kChunkValues; ++i) sum[i] += values[i];
      }
      const uint4 packed = Pack8(sum);
#pragma unroll
      for (int to = 0; to < kMaxCount; ++to) {
        if (to >= p.count) break;
        reinterpret_cast<uint4*>((in_place ? p.parts : p.residual)[to])[chunk] = packed;
      }
    }
  }
}

// A thread's eight of every 4096 values of a row. The residual is on its way while others are
// waited for.
constexpr int kMaxRowChunks = kMaxSumRowSize / kChunkValues / kPeerThreads;
struct RowValues {
  float values[kMaxRowChunks][kChunkValues];
  uint4 residual[kMaxRowChunks];
};

__device__ __forceinline__ void LoadRow(const SumRowsParams& s, const bf16* from,
                                        uint4 (&row)[kMaxRowChunks]) {
#pragma unroll
  for (int c = 0; c < kMaxRowChunks; ++c) {
    const int i = static_cast<int>(threadIdx.x) + c * kPeerThreads;
    if (i < s.hidden_size / kChunkValues) row[c] = reinterpret_cast<const uint4*>(from)[i];
  }
}

// The row's norm, to what `store` does with chunk i of it.
template <typename Store>
__device__ __forceinline__ void NormRow(const SumRowsParams& s, const RowValues& row,
                                        const uint4 (&weight)[kMaxRowChunks], float* scratch,
                                        const Store& store) {
  const int chunks = s.hidden_size / kChunkValues;
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kMaxRowChunks; ++c) {
    if (static_cast<int>(threadIdx.x) + c * kPeerThreads >= chunks) break;
#pragma unroll
    for (const float value : row.values[c]) sum += value * value;
  }
  const float scale =
      rsqrtf(BlockSum(sum, scratch) / static_cast<float>(s.hidden_size) + s.epsilon);
#pragma unroll
  for (int c = 0; c < kMaxRowChunks; ++c) {
    const int i = static_cast<int>(threadIdx.x) + c * kPeerThreads;
    if (i >= chunks) break;
    float normed[kChunkValues], weights[kChunkValues];
    Unpack8(weight[c], weights);
#pragma unroll
    for (int j = 0; j < kChunkValues; ++j) normed[j] = row.values[c][j] * scale * weights[j];
    store(i, Pack8(normed));
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

// A block a row, whose chunk of eight values are packets 2 i and 2 i + 1 of it.
__global__ void __launch_bounds__(kPeerThreads) MailRowsKernel(Peers p, SumRowsParams s) {
  __shared__ float scratch[32];
  LaunchNext();
  uint4 weight[kMaxRowChunks];
  if (s.weight != nullptr) LoadRow(s, s.weight, weight);
  WaitForPrevious();
  constexpr int64_t kMailBox = int64_t{kMailTiles} * kPeerThreads;
  const uint32_t turn = p.row_mail_turns[blockIdx.x] + 1;
  const int64_t boxes = int64_t{turn & 1} * p.count;
  const int chunks = s.hidden_size / kChunkValues;
  const int64_t first_packet = int64_t{blockIdx.x} * chunks * 2;
  const int64_t row_at = int64_t{blockIdx.x} * s.hidden_size;
  bf16* residual = p.residual[p.rank] + row_at;
  RowValues row;
  uint4 own[kMaxRowChunks];
  LoadRow(s, p.parts[p.rank] + row_at, own);
  LoadRow(s, residual, row.residual);
#pragma unroll
  for (int c = 0; c < kMaxRowChunks; ++c) {
    const int i = static_cast<int>(threadIdx.x) + c * kPeerThreads;
    if (i >= chunks) break;
    for (int next = 1; next < p.count; ++next) {
      const int to = (p.rank + next) % p.count;
      uint4* box = p.row_mail[to] + (boxes + p.rank) * kMailBox + first_packet + 2 * i;
      StoreVolatile(box, {own[c].x, turn, own[c].y, turn});
      StoreVolatile(box + 1, {own[c].z, turn, own[c].w, turn});
    }
  }
#pragma unroll
  for (int c = 0; c < kMaxRowChunks; ++c) {
    const int i = static_cast<int>(threadIdx.x) + c * kPeerThreads;
    if (i >= chunks) break;
#pragma unroll
    for (float& value : row.values[c]) value = 0.0f;
    for (int from = 0; from < p.count; ++from) {
      uint4 chunk = own[c];
      if (from != p.rank) {
        const uint4* box = p.row_mail[p.rank] + (boxes + from) * kMailBox + first_packet + 2 * i;
        uint4 low, high;
        WaitUntil(p, [&] {
          low = LoadVolatile(box);
          high = LoadVolatile(box + 1);
          return low.y == turn && low.w == turn && high.y == turn && high.w == turn;
        });
        chunk = {low.x, low.z, high.x, high.z};
      }
      float values[kChunkValues];
      Unpack8(chunk, values);
#pragma unroll
      for (int j = 0; j < kChunkValues; ++j) row.values[c][j] += values[j];
    }
    reinterpret_cast<uint4*>(residual)[i] = AddResidual(row.residual[c], row.values[c]);
  }
  if (s.weight != nullptr) {
    uint4* normed = reinterpret_cast<uint4*>(p.normed[p.rank] + row_at);
    NormRow(s, row, weight, scratch, [&](int i, uint4 packed) { normed[i] = packed; });
  }
  __syncthreads();
  if (threadIdx.x == 0) p.row_mail_turns[blockIdx.x] = turn;
}

// Blocks take rows of this GPU's share.
template <int kMaxCount>
__global__ void __launch_bounds__(kPeerThreads) MeetRowsKernel(Peers p, SumRowsParams s) {
  __shared__ float scratch[32];
  LaunchNext();
  uint4 weight[kMaxRowChunks];
  if (s.weight != nullptr) LoadRow(s, s.weight, weight);
  WaitForPrevious();
  const uint32_t turn = p.meet_turns[blockIdx.x];
  const int chunks = s.hidden_size / kChunkValues;
  const int end = static_cast<int>(int64_t{s.num_rows} * (p.rank + 1) / p.count);
  const int first = static_cast<int>(int64_t{s.num_rows} * p.rank / p.count);
  const int own_first = first + static_cast<int>(blockIdx.x);
  RowValues row;
  if (own_first < end)
    LoadRow(s, p.residual[p.rank] + int64_t{own_first} * s.hidden_size, row.residual);
  Meet(p, turn + 1);
  for (int at = own_first; at < end; at += gridDim.x) {
    const int64_t row_at = int64_t{at} * s.hidden_size;
    if (at != own_first) LoadRow(s, p.residual[p.rank] + row_at, row.residual);
#pragma unroll
    for (int c = 0; c < kMaxRowChunks; ++c) {
      const int i = static_cast<int>(threadIdx.x) + c * kPeerThreads;
      if (i >= chunks) break;
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
        float values[kChunkValues];
        Unpack8(parts[from], values);
#pragma unroll
        for (int j = 0; j < kChunkValues; ++j) row.values[c][j] += values[j];
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
    NormRow(s, row, weight, scratch, [&](int i, uint4 packed) {
#pragma unroll
      for (int to = 0; to < kMaxCount; ++to) {
        if (to >= p.count) break;
        reinterpret_cast<uint4*>(p.normed[to] + row_at)[i] = packed;
      }
    });
    __syncthreads();  // before the next row's sum
  }
  Meet(p, turn + 2);
  if (threadIdx.x == 0) p.meet_turns[blockIdx.x] = turn + 2;
}

template <int kMaxCount, int kUnroll>
__global__ void __launch_bounds__(kPeerThreads)
    MeetSumKernel(Peers p, int64_t count, bool in_place) {
  LaunchNext();
  WaitForPrevious();
  const uint32_t turn = p.meet_turns[blockIdx.x];
  Meet(p, turn + 1);
  const int64_t chunks = count / kChunkValues;
  SumShare<kMaxCount, kUnroll>(p, chunks, in_place);
  // What is left of a whole chunk, each GPU by itself.
  const int64_t last = chunks * kChunkValues + threadIdx.x;
  if (blockIdx.x == 0 && last < count) {
    float sum = 0.0f;
    for (int from = 0; from < p.count; ++from) {
      const auto* part = reinterpret_cast<const volatile uint16_t*>(p.parts[from]);
      sum += __uint_as_float(uint32_t{part[last]} << 16);
    }
    bf16* residual = p.residual[p.rank] + last;
    *residual = __float2bfloat16(sum + __bfloat162float(*residual));
  }
  Meet(p, turn + 2);
  if (threadIdx.x == 0) p.meet_turns[blockIdx.x] = turn + 2;
}

__global__ void __launch_bounds__(kPeerThreads)
    GatherLogitsKernel(Peers p, const float4* own, int num_rows, int64_t first, int64_t width,
                       int64_t vocab_size) {
  LaunchNext();
  WaitForPrevious();
  const uint32_t turn = p.meet_turns[blockIdx.x];
  Meet(p, turn + 1);  // rank 0 has read what it gathered before
  const int64_t total = num_rows * width;
  const int64_t stride = int64_t{gridDim.x} * kPeerThreads;
  for (int64_t i = int64_t{blockIdx.x} * kPeerThreads + threadIdx.x; i < total; i += stride) {
    const int64_t row = i / width, column = i - row * width;
    reinterpret_cast<float4*>(p.logits)[row * vocab_size + first + column] = own[i];
  }
  Meet(p, turn + 2);
  if (threadIdx.x == 0) p.meet_turns[blockIdx.x] = turn + 2;
}

__global__ void __launch_bounds__(kPeerThreads) ShareTokensKernel(Peers p, int count) {
  LaunchNext();
  WaitForPrevious();
  const uint32_t turn = p.meet_turns[0] + 1;
  if (p.rank == 0) {
    for (int i = threadIdx.x; i < count; i += kPeerThreads) {
      const int32_t id = p.last_tokens[0][i];
      for (int to = 1; to < p.count; ++to) p.last_tokens[to][i] = id;
    }
  }
  Meet(p, turn);
  if (threadIdx.x == 0) p.meet_turns[0] = turn;
}

// A meeting costs two trips and moves each byte twice over, mail four times to every other.
SumPath ChoosePath(const Peers& peers, int64_t count) {
  return count * (peers.count - 1) <= PeerMailElements() ? SumPath::kMail : SumPath::kMeet;
}
// `path`, but what no mail box has room for never goes by mail.
SumPath Possible(const Peers& peers, int64_t count, SumPath path) {
  if (path == SumPath::kAuto) path = ChoosePath(peers, count);
  return count <= PeerMailElements() ? path : SumPath::kMeet;
}

int64_t MeetBlocks(int64_t units) {
  return std::clamp<int64_t>((units + kPeerThreads - 1) / kPeerThreads, 1, kPeerBlocks);
}

}  // namespace

int64_t PeerMailElements() {
  return int64_t{kMailTiles} * kPeerThreads * kMailValues;
}

void SumOverPeers(const Peers& peers, int64_t count, SumInto into, SumPath path,
                  cudaStream_t stream) {
  if (count == 0) return;
  if (Possible(peers, count, path) == SumPath::kMail) {
    const int64_t packets = (count + kMailValues - 1) / kMailValues;
    Launch(MailSumKernel, static_cast<unsigned>((packets + kPeerThreads - 1) / kPeerThreads),
           kPeerThreads, 0, stream, peers, count, into == SumInto::kParts);
    return;
  }
  const auto kernel = peers.count <= 2   ? MeetSumKernel<2, 4>
                      : peers.count <= 4 ? MeetSumKernel<4, 2>
                                         : MeetSumKernel<8, 1>;
  const int64_t chunks = count / kChunkValues / peers.count + 1;
  Launch(kernel, static_cast<unsigned>(MeetBlocks(chunks)), kPeerThreads, 0, stream, peers, count,
         into == SumInto::kParts);
}

void SumRows(const Peers& peers, const SumRowsParams& params, SumPath path, cudaStream_t stream) {
  if (params.num_rows == 0) return;
  const int64_t count = int64_t{params.num_rows} * params.hidden_size;
  if (Possible(peers, count, path) == SumPath::kMail && params.num_rows <= kMailTiles) {
    Launch(MailRowsKernel, params.num_rows, kPeerThreads, 0, stream, peers, params);
    return;
  }
  const auto kernel = peers.count <= 2   ? MeetRowsKernel<2>
                      : peers.count <= 4 ? MeetRowsKernel<4>
                                         : MeetRowsKernel<8>;
  const int rows = (params.num_rows + peers.count - 1) / peers.count;
  Launch(kernel, std::min(rows, kPeerBlocks), kPeerThreads, 0, stream, peers, params);
}

void GatherLogits(const Peers& peers, const float* own, int num_rows, int64_t first, int64_t width,
                  int64_t vocab_size, cudaStream_t stream) {
  // The same number of blocks on all GPUs: widths differ a little.
  const int64_t blocks = MeetBlocks(num_rows * (vocab_size / 4) / peers.count / 2);
  Launch(GatherLogitsKernel, static_cast<unsigned>(blocks), kPeerThreads, 0, stream, peers,
         reinterpret_cast<const float4*>(own), num_rows, first / 4, width / 4, vocab_size / 4);
}

void ShareTokens(const Peers& peers, int count, cudaStream_t stream) {
  Launch(ShareTokensKernel, 1, kPeerThreads, 0, stream, peers, count);
}

}  // namespace nereid::gpu
