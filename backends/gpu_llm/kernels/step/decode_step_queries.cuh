// Prepares queries, keys and values for the attention of a fused decode step. The matrix product of
// q, k and v stores them in global memory without bias, norm and rotary embedding. In the block of
// threads that handles a unit of attention, each compute warp waits for some of the unit's heads,
// applies bias, norm and rotary embedding (as rope.cu does where kernels are separate), and stores
// the heads in shared memory, from which all compute warps read them. Only device code includes
// this file.
#pragma once

#include "backends/gpu_llm/kernels/attention/cache_quantization.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_exchange.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_ring.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

// The index of this thread, for attention. The compiler does not know that it is the same in each
// layer, so that it keeps no addresses for attention in registers during the products.
__device__ __forceinline__ int AttentionThread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// Inputs of a head before its rotation.
struct HeadSource {
  const bf16* row;        // the head's columns
  const bf16* bias;       // for the same columns; null: none
  const bf16* norm;       // [head_dim]; null: none
  const float2* cos_sin;  // for the token's position, [rope_dim / 2]
  int rope_dim;           // 0: no rotation
};

// Four columns of a head that a lane handles, in two words: columns that the rotary embedding
// combines or, behind these, adjacent ones. A head is divided into such fours.
template <int kHeadDim>
class HeadColumns {
 public:
  HeadColumns() = default;
  __device__ __forceinline__ HeadColumns(int four, int rope_dim) {
    exist_ = four < kHeadDim / 4;
    is_rotated_ = four < rope_dim / 4;
    low_ = is_rotated_ ? 2 * four : min(rope_dim + 4 * (four - rope_dim / 4), kHeadDim - 4);
    high_ = is_rotated_ ? low_ + rope_dim / 2 : low_ + 2;
  }
  __device__ __forceinline__ bool exist() const { return exist_; }
  __device__ __forceinline__ bool is_rotated() const { return is_rotated_; }
  // The first column of each word.
  __device__ __forceinline__ int low() const { return low_; }
  __device__ __forceinline__ int high() const { return high_; }

 private:
  bool exist_, is_rotated_;
  int low_, high_;
};

// Four columns of one head in each lane.
template <int kHeadDim>
class HeadPart {
 public:
  // Begins all loads. `four`: number of the columns.
  __device__ __forceinline__ void Begin(const HeadSource& head, int four) {
    columns_ = HeadColumns<kHeadDim>(four, head.rope_dim);
    row_ = columns_.exist() ? head.row : nullptr;
    Load();
    const auto load = [&](const bf16* from, uint32_t(&to)[2]) {
      if (from == nullptr || !columns_.exist()) return;
      to[0] = __ldg(reinterpret_cast<const uint32_t*>(from + columns_.low()));
      to[1] = __ldg(reinterpret_cast<const uint32_t*>(from + columns_.high()));
    };
    load(head.bias, bias_);
    load(head.norm, norm_);
    if (columns_.is_rotated())
      cos_sin_ = __ldg(reinterpret_cast<const float4*>(head.cos_sin + columns_.low()));
  }
  // Whether the columns are ready. Otherwise loads them again.
  __device__ __forceinline__ bool Poll() {
    if (row_ == nullptr || (low_ != kNotReady && high_ != kNotReady)) return true;
    Load();
    return false;
  }
  // Writes the columns with their bias to `values`: low(), low() + 1, high(), high() + 1. Returns
  // the sum of their squares.
  __device__ __forceinline__ float AddBias(float (&values)[4]) const {
    values[0] = LowBf16(low_) + LowBf16(bias_[0]), values[1] = HighBf16(low_) + HighBf16(bias_[0]);
    values[2] = LowBf16(high_) + LowBf16(bias_[1]);
    values[3] = HighBf16(high_) + HighBf16(bias_[1]);
    float squares = 0.0f;
    if (columns_.exist()) {
#pragma unroll
      for (const float value : values) squares += value * value;
    }
    return squares;
  }
  __device__ __forceinline__ void Norm(float factor, float (&values)[4]) const {
    values[0] *= factor * LowBf16(norm_[0]), values[1] *= factor * HighBf16(norm_[0]);
    values[2] *= factor * LowBf16(norm_[1]), values[3] *= factor * HighBf16(norm_[1]);
  }
  __device__ __forceinline__ void Rotate(float (&values)[4]) const {
    if (!columns_.is_rotated()) return;
    const float low[2] = {values[0], values[1]}, high[2] = {values[2], values[3]};
    values[0] = low[0] * cos_sin_.x - high[0] * cos_sin_.y;
    values[1] = low[1] * cos_sin_.z - high[1] * cos_sin_.w;
    values[2] = high[0] * cos_sin_.x + low[0] * cos_sin_.y;
    values[3] = high[1] * cos_sin_.z + low[1] * cos_sin_.w;
  }
  __device__ __forceinline__ const HeadColumns<kHeadDim>& columns() const {
    return columns_;
  }

 private:
  __device__ __forceinline__ void Load() {
    if (row_ == nullptr) return;
    low_ = LoadWord(row_ + columns_.low()), high_ = LoadWord(row_ + columns_.high());
  }

  HeadColumns<kHeadDim> columns_;
  const bf16* row_;
  uint32_t low_, high_;
  uint32_t bias_[2] = {}, norm_[2] = {};
  float4 cos_sin_ = {};
};

// One head, of which a warp has all columns.
template <int kHeadDim>
class HeadLoad {
 public:
  static constexpr int kParts = (kHeadDim + 127) / 128;

  // Begins all loads.
  __device__ __forceinline__ void Begin(const HeadSource& head, int lane) {
    has_norm_ = head.norm != nullptr;
#pragma unroll
    for (int i = 0; i < kParts; ++i) parts_[i].Begin(head, lane + 32 * i);
  }
  // Whether the head is ready. Otherwise loads it again.
  __device__ __forceinline__ bool Poll() {
    bool is_ready = true;
#pragma unroll
    for (HeadPart<kHeadDim>& part : parts_) is_ready &= part.Poll();
    return is_ready;
  }
  // Applies bias, norm and rotary embedding, and calls `use` with the lane's columns and their
  // values: low(), low() + 1, high(), high() + 1. All lanes of the warp call it, after Poll() was
  // true.
  template <typename Use>
  __device__ __forceinline__ void Finish(float epsilon, const Use& use) const {
    float values[kParts][4], squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kParts; ++i) squares += parts_[i].AddBias(values[i]);
    if (has_norm_) {
      const float factor = rsqrtf(WarpSum(squares) / kHeadDim + epsilon);
#pragma unroll
      for (int i = 0; i < kParts; ++i) parts_[i].Norm(factor, values[i]);
    }
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      parts_[i].Rotate(values[i]);
      if (parts_[i].columns().exist()) use(parts_[i].columns(), values[i]);
    }
  }

 private:
  HeadPart<kHeadDim> parts_[kParts];
  bool has_norm_;
};

// The heads of a unit in shared memory. They lie in SharedState::partials, because a block computes
// no product during attention.
template <int kHeadDim>
class UnitHeads {
 public:
  // Bytes from one query to the next: adjacent rows are half of the banks apart.
  static constexpr int kPitch = (2 * kHeadDim + 63) / 128 * 128 + 64;
  static constexpr int kTokenFloats = 2 * kHeadDim;  // key and value
  // Units with wide heads have one token.
  static constexpr int kMaxTokens = kHeadDim <= kWideHeadDim ? kDecodeStepRows : 1;
  static_assert(kPitch >= 2 * kHeadDim && kItemRows * kPitch + kMaxTokens * kTokenFloats * 4 <=
                                              static_cast<int>(sizeof(SharedState::partials)));

  __device__ explicit UnitHeads(SharedState& shared)
      : queries_(reinterpret_cast<char*>(shared.partials)) {}

  // Rotated queries in bf16, or in fp16 if the cache is quantized.
  __device__ __forceinline__ char* Query(int row) const { return queries_ + row * kPitch; }
  // The rotated key of the unit's i-th new token, and its value.
  __device__ __forceinline__ float* Key(int i) const {
    return reinterpret_cast<float*>(queries_ + kItemRows * kPitch) + i * kTokenFloats;
  }
  __device__ __forceinline__ float* Value(int i) const { return Key(i) + kHeadDim; }

 private:
  char* queries_;
};

// The queries of a unit, and the tokens of its part of the context that this step computes. Row r
// has the query of the unit's head r % unit_heads for the item's token r / unit_heads. kOneRow: the
// step has one row.
template <bool kOneRow>
class UnitQueries {
 public:
  __device__ UnitQueries(const DecodeStepParams& p, const DecodeStepLayer& layer, const bf16* qkv,
                         int stride, int head_dim, const AttentionUnit& unit)
      : p_(p),
        layer_(layer),
        qkv_(qkv),
        stride_(stride),
        head_dim_(head_dim),
        unit_(unit),
        count_(unit.item.num_tokens * p.unit_heads),
        first_new_(max(unit.item.first_new, unit.first_tile * kBlockTokens)),
        num_new_(min(unit.item.length, (unit.first_tile + unit.num_tiles) * kBlockTokens) -
                 first_new_) {}

  __device__ __forceinline__ int count() const { return count_; }
  // Position of the first new token, and the number of new ones, which may be negative.
  __device__ __forceinline__ int first_new() const { return first_new_; }
  __device__ __forceinline__ int num_new() const { return num_new_; }
  __device__ __forceinline__ int Token(int row) const {
    return kOneRow || unit_.item.num_tokens == 1 ? 0 : row / p_.unit_heads;
  }
  __device__ __forceinline__ int Head(int row) const {
    return unit_.first_head + row - Token(row) * p_.unit_heads;
  }
  // The token behind the last that a row sees.
  __device__ __forceinline__ int End(int row) const {
    return unit_.item.length - unit_.item.num_tokens + 1 + Token(row);
  }
  // Position of the first query.
  __device__ __forceinline__ int First() const { return unit_.item.length - unit_.item.num_tokens; }
  // The number of heads that the unit reads, in this order: its queries, then the key and the value
  // of each new token.
  __device__ __forceinline__ int NumHeads() const { return count_ + 2 * max(0, num_new_); }
  __device__ __forceinline__ HeadSource HeadOf(int i) const {
    if (i < count_) return Source(unit_.item.row + Token(i), Head(i), layer_.q_norm);
    const int row = RowOf(first_new_ + (i - count_) / 2);
    if ((i - count_) % 2 == 0) return Source(row, p_.num_heads + unit_.kv_head, layer_.k_norm);
    HeadSource value = Source(row, p_.num_heads + p_.num_kv_heads + unit_.kv_head, nullptr);
    value.rope_dim = 0;
    return value;
  }
  __device__ __forceinline__ int CacheSlot(int position) const {
    const int row = RowOf(position);
    return kOneRow || row == unit_.item.row ? unit_.slot : p_.cache_slots[row];
  }

 private:
  __device__ __forceinline__ int RowOf(int position) const {
    return unit_.item.row + position - First();
  }
  __device__ __forceinline__ HeadSource Source(int row, int head, const bf16* norm) const {
    const int64_t at = int64_t{head} * head_dim_;
    const int position = kOneRow || row == unit_.item.row ? unit_.position : p_.positions[row];
    return HeadSource{qkv_ + row * stride_ + at,
                      layer_.qkv_bias != nullptr ? layer_.qkv_bias + at : nullptr, norm,
                      layer_.cos_sin + int64_t{position} * (layer_.rope_dim / 2), layer_.rope_dim};
  }

  const DecodeStepParams& p_;
  const DecodeStepLayer& layer_;
  const bf16* qkv_;
  const int stride_, head_dim_;
  const AttentionUnit& unit_;
  const int count_, first_new_, num_new_;
};

// Prepares all heads of a unit, and stores them in shared memory. All compute warps call it: each
// waits until other blocks have written the heads that it prepares, up to kAtOnce at the same time,
// and returns when every head is stored.
template <int kHeadDim, CacheFormat kCache, int kAtOnce, bool kOneRow>
__device__ __forceinline__ void StoreHeads(const DecodeStepParams& p, SharedState& shared,
                                           const UnitQueries<kOneRow>& queries, int thread) {
  const UnitHeads<kHeadDim> to(shared);
  const int num_heads = queries.NumHeads();
  for (int first = thread / 32; first < num_heads; first += kAtOnce * kWarps) {
    HeadLoad<kHeadDim> loads[kAtOnce];
    const auto for_each = [&](const auto& use) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int head = first + i * kWarps;
        if (head >= num_heads) break;
        use(head, loads[i]);
      }
    };
    for_each(
        [&](int head, HeadLoad<kHeadDim>& load) { load.Begin(queries.HeadOf(head), thread % 32); });
    SpinUntilReady(p, shared, [&] {
      bool is_ready = true;
      for_each([&](int, HeadLoad<kHeadDim>& load) { is_ready &= load.Poll(); });
      return is_ready;
    });
    for_each([&](int head, HeadLoad<kHeadDim>& load) {
      load.Finish(p.epsilon, [&](const HeadColumns<kHeadDim>& columns, const float(&values)[4]) {
        if (head < queries.count()) {
          const auto pack = [](float low, float high) {
            const uint32_t pair = PackBf16(low, high);
            return kCache == CacheFormat::kBf16 ? pair : ToHalf(pair);
          };
          char* const row = to.Query(head);
          *reinterpret_cast<uint32_t*>(row + 2 * columns.low()) = pack(values[0], values[1]);
          *reinterpret_cast<uint32_t*>(row + 2 * columns.high()) = pack(values[2], values[3]);
        } else {
          const int i = head - queries.count();
          float* const row = i % 2 == 0 ? to.Key(i / 2) : to.Value(i / 2);
          *reinterpret_cast<float2*>(row + columns.low()) = {values[0], values[1]};
          *reinterpret_cast<float2*>(row + columns.high()) = {values[2], values[3]};
        }
      });
    });
  }
  SyncConsumers();
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
