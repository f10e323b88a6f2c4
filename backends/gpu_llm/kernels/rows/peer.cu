// Two ways to sum. By mail, for few rows: a packet says by itself that it has come, so that a sum
// takes one trip over the link and no fence; mail of a turn lies where that of the turn before the
// last lay, which all have read, since the turn between needed mail from them. By meeting, for
// many: each GPU reads its share of all parts, sums, and writes the sum to all; blocks of the same
// number meet before and after.
//
// Each block counts its turns by itself, in its GPU's memory, so that recorded graphs go on where
// they left off. A turn comes again after 2^32 others.
//
// H200s, 18 links of NVLink 4 (450 GB/s a direction): 128 MiB by meeting take 416 us on two GPUs
// and 643 on four, 323 and 313 GB/s a direction: 72 and 70 %. 8 KiB by mail take 2.5 and 3.4 us.
#include <algorithm>

#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/rows/peer_trip.cuh"

namespace nereid::gpu {
namespace {

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
