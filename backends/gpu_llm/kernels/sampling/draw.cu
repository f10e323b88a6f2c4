// Grid: one block of threads for each row. Applies the rules (bias, penalties, bans), finds the
// threshold of top-k, top-p and min-p, and draws. Nothing is sorted: a radix search over the
// logits' bits finds the threshold digit by digit. It counts tokens and adds probabilities in fixed
// point, so that the result does not depend on the order of additions. Top-p of 256 rows of 128,256
// takes 410 us, 14 times the time to read them.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/sampling/sample.h"
#include "backends/gpu_llm/kernels/sampling/sample_target.cuh"
#include "backends/llm_core/sampling/philox.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kThreads = 1024;
constexpr int kBins = 2048;
constexpr int kBinsPerThread = kBins / kThreads;
constexpr float kNoiseSpan = 21.0f;   // the same as in llm_core's sampler
constexpr float kMassUnit = 0x1p40f;  // fixed-point value of the most likely token's probability

// Digits of 11, 11 and 10 bits.
__device__ __forceinline__ int Shift(int digit) {
  return digit == 0 ? 21 : digit == 1 ? 10 : 0;
}

// Has the order of the floats.
__device__ __forceinline__ uint32_t SortKey(float value) {
  const uint32_t bits = __float_as_uint(__fadd_rn(value, 0.0f));  // makes -0 equal to +0
  return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}

struct DrawState {
  uint32_t counts[kBins];
  uint32_t low_masses[kBins], high_masses[kBins];
  unsigned long long warp_sums[32];
  float values[32];
  int ids[32];
  // Of the bin in which a search ends.
  int bin;
  unsigned long long count_above, mass_above;
  int cutoff;
};

// A row of logits with its scale. Elements are the scaled logits.
struct LogitRow {
  const float* logits;
  int size;
  float scale, max;  // max: of the scaled logits
  __device__ float Scaled(int i) const { return __fmul_rn(logits[i], scale); }

  // Calls visit(id, scaled logit), four adjacent logits a thread, with several loads in flight.
  template <typename Visit>
  __device__ __forceinline__ void ForEach(Visit visit) const {
    constexpr int kAhead = 4;
    const float4* quads = reinterpret_cast<const float4*>(logits);
    const int num_quads = size / 4;
    for (int first = threadIdx.x; first < num_quads; first += kAhead * kThreads) {
      float4 loaded[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int quad = first + i * kThreads;
        if (quad < num_quads) loaded[i] = quads[quad];
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int quad = first + i * kThreads;
        if (quad >= num_quads) break;
        visit(4 * quad, __fmul_rn(loaded[i].x, scale));
        visit(4 * quad + 1, __fmul_rn(loaded[i].y, scale));
        visit(4 * quad + 2, __fmul_rn(loaded[i].z, scale));
        visit(4 * quad + 3, __fmul_rn(loaded[i].w, scale));
      }
    }
  }
};

// The kept tokens: keys above `key`, and the first `num_ties` of those equal to it.
struct Threshold {
  uint32_t key = 0;
  unsigned long long num_ties = ~0ull;
  unsigned long long num_equal = 0;
  unsigned long long mass = 0;  // of all kept tokens
};

// Sum over this thread and the threads before it.
__device__ unsigned long long InclusiveScan(unsigned long long value, DrawState& shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const unsigned long long other = __shfl_up_sync(0xffffffffu, value, distance);
    if (lane >= distance) value += other;
  }
  if (lane == 31) shared.warp_sums[warp] = value;
  __syncthreads();
  unsigned long long before = 0;
  for (int i = 0; i < warp; ++i) before += shared.warp_sums[i];
  __syncthreads();
  return before + value;
}

// Maximum scaled logit, lowest id for equal ones; returned to all threads.
__device__ void FindMax(float value, int id, DrawState& shared, float& max, int& argmax) {
  const auto join = [&](float other, int other_id) {
    if (other > value || (other == value && other_id < id)) value = other, id = other_id;
  };
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    join(__shfl_xor_sync(0xffffffffu, value, lane), __shfl_xor_sync(0xffffffffu, id, lane));
  }
  if (threadIdx.x % 32 == 0) {
    shared.values[threadIdx.x / 32] = value;
    shared.ids[threadIdx.x / 32] = id;
  }
  __syncthreads();
  for (int i = 0; i < kThreads / 32; ++i) join(shared.values[i], shared.ids[i]);
  __syncthreads();
  max = value;
  argmax = id;
}

__device__ __forceinline__ unsigned long long Mass(float scaled, float max) {
  return __float2ull_rn(expf(scaled - max) * kMassUnit);
}

// Adds in two words, because shared memory has fast atomics on single words only.
__device__ __forceinline__ void AddMass(DrawState& shared, int bin, unsigned long long mass) {
  const auto low = static_cast<uint32_t>(mass);
  auto high = static_cast<uint32_t>(mass >> 32);
  if (atomicAdd(&shared.low_masses[bin], low) > ~low) ++high;
  if (high != 0) atomicAdd(&shared.high_masses[bin], high);
}
__device__ __forceinline__ unsigned long long MassOf(const DrawState& shared, int bin) {
  return static_cast<unsigned long long>(shared.high_masses[bin]) << 32 | shared.low_masses[bin];
}

// Finds the smallest set of the most likely tokens, among those with keys of at least `least`,
// whose count (or mass) reaches `target`. The set has all tokens if they do not reach it.
template <bool kByMass>
__device__ Threshold FindThreshold(const LogitRow& row, uint32_t least, unsigned long long target,
                                   DrawState& shared) {
  uint32_t prefix = 0;
  unsigned long long count_above = 0, mass_above = 0;
  Threshold found;
  for (int digit = 0; digit < 3; ++digit) {
    const int shift = Shift(digit);
    const uint32_t bins = digit == 2 ? 1024 : kBins;
    for (int i = threadIdx.x; i < kBins; i += kThreads) {
      shared.counts[i] = shared.low_masses[i] = shared.high_masses[i] = 0;
    }
    if (threadIdx.x == 0) shared.bin = -1;
    __syncthreads();
    row.ForEach([&](int, float scaled) {
      const uint32_t key = SortKey(scaled);
      if (scaled == kNegativeInfinity || key < least) return;
      if (digit > 0 && key >> Shift(digit - 1) != prefix) return;
      const auto bin = static_cast<int>(key >> shift & (bins - 1));
      atomicAdd(&shared.counts[bin], 1u);
      AddMass(shared, bin, Mass(scaled, row.max));
    });
    __syncthreads();
    // From the highest digit down; each thread has adjacent digits.
    unsigned long long counts = 0, masses = 0;
    for (int j = 0; j < kBinsPerThread; ++j) {
      const int bin = kBins - 1 - (static_cast<int>(threadIdx.x) * kBinsPerThread + j);
      counts += shared.counts[bin];
      masses += MassOf(shared, bin);
    }
    unsigned long long count_end = count_above + InclusiveScan(counts, shared);
    unsigned long long mass_end = mass_above + InclusiveScan(masses, shared);
    count_end -= counts, mass_end -= masses;  // now exclusive of this thread's digits
    for (int j = 0; j < kBinsPerThread; ++j) {
      const int bin = kBins - 1 - (static_cast<int>(threadIdx.x) * kBinsPerThread + j);
      const unsigned long long before = kByMass ? mass_end : count_end;
      const unsigned long long own = kByMass ? MassOf(shared, bin) : shared.counts[bin];
      if (before < target && before + own >= target) {
        shared.bin = bin;
        shared.count_above = count_end;
        shared.mass_above = mass_end;
      }
      count_end += shared.counts[bin];
      mass_end += MassOf(shared, bin);
    }
    if (threadIdx.x == kThreads - 1) found.mass = mass_end;
    __syncthreads();
    if (shared.bin < 0) {  // all tokens are kept, found at the first digit
      if (threadIdx.x == kThreads - 1) shared.mass_above = found.mass;
      __syncthreads();
      found = {};
      found.key = least;
      found.mass = shared.mass_above;
      __syncthreads();
      return found;
    }
    prefix = prefix << (digit == 2 ? 10 : 11) | static_cast<uint32_t>(shared.bin);
    count_above = shared.count_above;
    mass_above = shared.mass_above;
    if (digit < 2) __syncthreads();
  }
  const int bin = shared.bin;
  found.key = prefix;
  found.num_equal = shared.counts[bin];
  const unsigned long long each = MassOf(shared, bin) / max(1u, shared.counts[bin]);
  if (kByMass) {
    found.num_ties = each == 0 ? found.num_equal : (target - mass_above + each - 1) / each;
    found.num_ties = min(found.num_ties, found.num_equal);
  } else {
    found.num_ties = target - count_above;
  }
  found.mass = mass_above + found.num_ties * each;
  __syncthreads();
  return found;
}

// Highest id of the kept ties: equal logits are kept in the order of ids.
__device__ int TieCutoff(const LogitRow& row, const Threshold& threshold, DrawState& shared) {
  if (threshold.num_ties >= threshold.num_equal) return row.size;
  const int share = (row.size + kThreads - 1) / kThreads;
  const int first = static_cast<int>(threadIdx.x) * share, last = min(row.size, first + share);
  unsigned long long own = 0;
  for (int i = first; i < last; ++i) own += SortKey(row.Scaled(i)) == threshold.key ? 1 : 0;
  unsigned long long before = InclusiveScan(own, shared) - own;
  if (before < threshold.num_ties && before + own >= threshold.num_ties) {
    for (int i = first; i < last; ++i) {
      if (SortKey(row.Scaled(i)) == threshold.key && ++before == threshold.num_ties)
        shared.cutoff = i;
    }
  }
  __syncthreads();
  return shared.cutoff;
}

__device__ Threshold SelectThreshold(const LogitRow& row, const DrawItem& item, DrawState& shared) {
  Threshold threshold;
  if (item.top_k > 0) threshold = FindThreshold<false>(row, 0, item.top_k, shared);
  if (item.top_p >= 1.0f) return threshold;
  if (item.top_k <= 0)
    threshold = FindThreshold<false>(row, 0, ~0ull, shared);  // the mass of all tokens
  const auto target = static_cast<unsigned long long>(
      ceil(static_cast<double>(threshold.mass) * static_cast<double>(item.top_p)));
  return FindThreshold<true>(row, threshold.key, max(1ull, target), shared);
}

__device__ void ApplyEdits(const DrawItem& item, LogitEdit* edits, float* logits) {
  for (int i = threadIdx.x; i < item.num_edits; i += kThreads) {
    LogitEdit& edit = edits[i];
    float logit = logits[edit.id];
    edit.raw = logit;
    logit = __fadd_rn(logit, edit.bias);
    if (edit.count > 0) {
      logit = logit < 0.0f ? __fmul_rn(logit, item.repetition_penalty)
                           : __fdiv_rn(logit, item.repetition_penalty);
      logit = __fsub_rn(__fsub_rn(logit, item.presence_penalty),
                        __fmul_rn(item.frequency_penalty, static_cast<float>(edit.count)));
    }
    logits[edit.id] = edit.count == kBannedToken ? kNegativeInfinity : logit;
  }
  __syncthreads();
}

// Bans the tokens whose bit is not set.
__device__ void ApplyMask(const uint32_t* mask, int num_words, int vocab_size, float* logits) {
  for (int id = threadIdx.x; id < vocab_size; id += kThreads) {
    const uint32_t word = id / 32 < num_words ? mask[id / 32] : 0;
    if ((word >> (id % 32) & 1) == 0) logits[id] = kNegativeInfinity;
  }
  __syncthreads();
}

// The maximum over the kept tokens of scaled logit plus Gumbel noise, which depends on seed,
// position and id.
__device__ int Draw(const LogitRow& row, const DrawItem& item, const Threshold& threshold,
                    int cutoff, int most_likely, DrawState& shared) {
  const uint64_t seed = uint64_t{item.seed_high} << 32 | item.seed_low;
  const float least = row.max + item.log_min_p;
  float best = kNegativeInfinity;
  int drawn = most_likely;
  row.ForEach([&](int i, float scaled) {
    if (!(scaled > row.max - kNoiseSpan)) return;
    const uint32_t key = SortKey(scaled);
    if (key < threshold.key || (key == threshold.key && i > cutoff)) return;
    if (scaled < least && i != most_likely) return;
    const float uniform = llm::TokenUniform(seed, item.position, static_cast<uint32_t>(i));
    const float value = __fadd_rn(scaled, -logf(-logf(uniform)));
    if (value > best || (value == best && i < drawn)) best = value, drawn = i;
  });
  float max;
  FindMax(best, drawn, shared, max, drawn);
  return drawn;
}

__global__ void __launch_bounds__(kThreads) DrawKernel(DrawParams p) {
  __shared__ DrawState shared;
  WaitForPrevious();
  const DrawItem item = p.items[blockIdx.x];
  float* logits = p.logits + int64_t{item.row} * p.vocab_size;
  LogitEdit* edits = p.edits + item.first_edit;
  ApplyEdits(item, edits, logits);
  if (item.mask_row >= 0) {
    ApplyMask(p.masks + int64_t{item.mask_row} * p.mask_words, p.mask_words, p.vocab_size, logits);
  }
  LogitRow row = {logits, p.vocab_size, item.scale, 0.0f};
  float best = kNegativeInfinity;
  int at = INT32_MAX;
  row.ForEach([&](int i, float scaled) {
    if (scaled > best) best = scaled, at = i;
  });
  int most_likely;
  FindMax(best, at, shared, row.max, most_likely);
  const bool has_token = most_likely != INT32_MAX;  // false: all tokens are banned
  if (!has_token) most_likely = 0;
  int id = most_likely;
  if (item.is_greedy == 0 && row.max != kNegativeInfinity) {
    const Threshold threshold = SelectThreshold(row, item, shared);
    const int cutoff = TieCutoff(row, threshold, shared);
    id = Draw(row, item, threshold, cutoff, most_likely, shared);
  }
  __shared__ float raw;
  if (threadIdx.x == 0) raw = logits[id];
  __syncthreads();
  for (int i = threadIdx.x; i < item.num_edits; i += kThreads) {
    if (edits[i].id == id) raw = edits[i].raw;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  WriteToken(p.target, item.row, has_token ? id : llm::kNoToken,
             has_token ? raw - p.log_sums[item.row] : 0.0f);
}

}  // namespace

void DrawTokens(const DrawParams& params, cudaStream_t stream) {
  Launch(DrawKernel, params.num_items, kThreads, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
