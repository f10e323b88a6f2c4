// Queries, keys and values of a fused decode step's attention, as the product of q, k and v leaves
// them: the work of rope.cu is fused, heads are rotated when they are read. Device code only.
#pragma once

#include <type_traits>

#include "backends/gpu_llm/kernels/attention/cache_quantization.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_ring.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

// Inputs of a head before its rotation.
struct HeadSource {
  const bf16* row;        // the head's columns
  const bf16* bias;       // for the same columns; null: none
  const bf16* norm;       // [head_dim]; null: none
  const float2* cos_sin;  // for the token's position, [rope_dim / 2]
  int rope_dim;
};

// Words of kCount columns of a head.
template <int kCount>
struct HeadWords {
  static_assert(kCount == 4 || kCount == 8);
  using Packed = std::conditional_t<kCount == 8, uint4, uint2>;
  Packed packed;

  __device__ __forceinline__ void Load(const HeadSource& head, int column) {
    if constexpr (kCount == 8) {
      packed = LoadWords4(head.row + column);
    } else {
      packed = LoadWords2(head.row + column);
    }
  }
  __device__ __forceinline__ bool is_ready() const { return IsReady(packed); }

  // kPlain: the head has neither bias nor norm.
  template <bool kPlain>
  __device__ __forceinline__ void Unpack(const HeadSource& head, int column,
                                         float (&values)[kCount]) const {
    To(packed, values);
    if (kPlain || head.bias == nullptr) return;
    float bias[kCount];
    To(__ldg(reinterpret_cast<const Packed*>(head.bias + column)), bias);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += bias[i];
  }

 private:
  __device__ static __forceinline__ void To(const Packed& from, float (&values)[kCount]) {
    if constexpr (kCount == 8) {
      Unpack8(from, values);
    } else {
      values[0] = LowBf16(from.x), values[1] = HighBf16(from.x);
      values[2] = LowBf16(from.y), values[3] = HighBf16(from.y);
    }
  }
};

// kCount columns of a head and those with which the rotary embedding combines them.
template <int kCount>
struct RotatedColumns {
  int column, partner;
  HeadWords<kCount> own, others;

  __device__ __forceinline__ void Load(const HeadSource& head, int first) {
    const int half = head.rope_dim / 2;
    column = first;
    partner = column < head.rope_dim ? (column < half ? column + half : column - half) : column;
    own.Load(head, column), others.Load(head, partner);
  }
  // `factor`: 1 / RMS of the head's norm.
  template <bool kPlain>
  __device__ __forceinline__ void Rotate(const HeadSource& head, float factor,
                                         float (&values)[kCount]) const {
    const bool is_rotated_column = column < head.rope_dim, is_first = column < head.rope_dim / 2;
    float partners[kCount];
    float4 cos_sin[kCount / 2];
    const auto* from = reinterpret_cast<const float4*>(
        head.cos_sin + (is_rotated_column ? min(column, partner) : 0));
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) cos_sin[i] = __ldg(from + i);
    own.template Unpack<kPlain>(head, column, values);
    others.template Unpack<kPlain>(head, partner, partners);
    if (!kPlain && head.norm != nullptr) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        values[i] *= factor * __bfloat162float(head.norm[column + i]);
        partners[i] *= factor * __bfloat162float(head.norm[partner + i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float cosine = i % 2 == 0 ? cos_sin[i / 2].x : cos_sin[i / 2].z;
      const float sine = i % 2 == 0 ? cos_sin[i / 2].y : cos_sin[i / 2].w;
      const float turned = values[i] * cosine + (is_first ? -partners[i] : partners[i]) * sine;
      if (is_rotated_column) values[i] = turned;
    }
  }
};

// Columns of a thread in the mma steps: 8 of each 32, then 4 of the last 16.
template <int kHeadDim>
struct HeadShape {
  static constexpr int kWide = kHeadDim / 32;
  static constexpr bool kHasRest = kHeadDim % 32 != 0;
  static constexpr int kWords = kHeadDim / 8;  // of 2 columns
};

// 1 / RMS of a query head, of whose squares four adjacent threads have a part each.
template <int kHeadDim>
__device__ __forceinline__ float HeadFactor(float squares, float epsilon) {
  const uint32_t four = 0xfu << (threadIdx.x % 32 / 4 * 4);
  squares += __shfl_xor_sync(four, squares, 1);
  squares += __shfl_xor_sync(four, squares, 2);
  return rsqrtf(squares / kHeadDim + epsilon);
}

// A thread's columns of a query head, 8 of each 32.
template <int kHeadDim>
struct QueryFragments {
  static constexpr int kFragments = (kHeadDim + 31) / 32;
  uint4 fragments[kFragments];
};

// Spins until the whole head is ready; called by a whole warp.
template <int kHeadDim>
__device__ __forceinline__ QueryFragments<kHeadDim> WaitForHead(const DecodeStepParams& p,
                                                                const SharedState& shared,
                                                                const HeadSource& head) {
  QueryFragments<kHeadDim> words;
  SpinUntilReady(p, shared, [&] {
    bool is_ready = true;
#pragma unroll
    for (int i = 0; i < words.kFragments; ++i)
      words.fragments[i] = LoadWords4(head.row + (32 * i + 8 * (threadIdx.x % 4)) % kHeadDim);
#pragma unroll
    for (const uint4& fragment : words.fragments) is_ready &= IsReady(fragment);
    return is_ready;
  });
  return words;
}

// Does what LoadQuery() does, for a head whose columns all have a rotary embedding: the two columns
// that are rotated together are in fragments of the same thread.
template <int kHeadDim>
__device__ __forceinline__ void RotateQuery(const HeadSource& head, float epsilon,
                                            const QueryFragments<kHeadDim>& words,
                                            uint32_t (&q)[HeadShape<kHeadDim>::kWords]) {
  constexpr int kHalf = kHeadDim / 64;  // in fragments
  static_assert(kHeadDim % 64 == 0);
  const int t = threadIdx.x % 4;
  float factor = 1.0f;
  if (head.norm != nullptr) {
    float squares = 0.0f;
#pragma unroll
    for (int s = 0; s < 2 * kHalf; ++s) {
      float values[8];
      HeadWords<8>{words.fragments[s]}.template Unpack<false>(head, 32 * s + 8 * t, values);
#pragma unroll
      for (const float value : values) squares += value * value;
    }
    factor = HeadFactor<kHeadDim>(squares, epsilon);
  }
#pragma unroll
  for (int s = 0; s < kHalf; ++s) {
    float low[8], high[8], turned_low[8], turned_high[8];
    const auto values_of = [&](int fragment, float(&values)[8]) {
      const int column = 32 * fragment + 8 * t;
      HeadWords<8>{words.fragments[fragment]}.template Unpack<false>(head, column, values);
      if (head.norm == nullptr) return;
      float weights[8];
      Unpack8(__ldg(reinterpret_cast<const uint4*>(head.norm + column)), weights);
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] *= factor * weights[i];
    };
    values_of(s, low);
    values_of(s + kHalf, high);
    const auto* cos_sin = reinterpret_cast<const float4*>(head.cos_sin + 32 * s + 8 * t);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 pair = __ldg(cos_sin + i / 2);
      const float cosine = i % 2 == 0 ? pair.x : pair.z, sine = i % 2 == 0 ? pair.y : pair.w;
      turned_low[i] = low[i] * cosine - high[i] * sine;
      turned_high[i] = high[i] * cosine + low[i] * sine;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      q[4 * s + i] = PackBf16(turned_low[2 * i], turned_low[2 * i + 1]);
      q[4 * (s + kHalf) + i] = PackBf16(turned_high[2 * i], turned_high[2 * i + 1]);
    }
  }
}

// Loads a query head, rotated, as an mma operand.
template <int kHeadDim, bool kPlain>
__device__ __forceinline__ void LoadQuery(const HeadSource& head, float epsilon,
                                          uint32_t (&q)[HeadShape<kHeadDim>::kWords]) {
  using Shape = HeadShape<kHeadDim>;
  const int t = threadIdx.x % 4;
  float factor = 1.0f;
  if (!kPlain && head.norm != nullptr) {
    float squares = 0.0f;
    for (int column = 4 * t; column < kHeadDim; column += 16) {
      HeadWords<4> words;
      words.Load(head, column);
      float values[4];
      words.template Unpack<kPlain>(head, column, values);
      for (const float value : values) squares += value * value;
    }
    factor = HeadFactor<kHeadDim>(squares, epsilon);
  }
#pragma unroll
  for (int s = 0; s < Shape::kWide; ++s) {
    RotatedColumns<8> columns;
    columns.Load(head, 32 * s + 8 * t);
    float values[8];
    columns.template Rotate<kPlain>(head, factor, values);
#pragma unroll
    for (int i = 0; i < 4; ++i) q[4 * s + i] = PackBf16(values[2 * i], values[2 * i + 1]);
  }
  if constexpr (Shape::kHasRest) {
    RotatedColumns<4> columns;
    columns.Load(head, 32 * Shape::kWide + 4 * t);
    float values[4];
    columns.template Rotate<kPlain>(head, factor, values);
    q[4 * Shape::kWide] = PackBf16(values[0], values[1]);
    q[4 * Shape::kWide + 1] = PackBf16(values[2], values[3]);
  }
}

// The queries of a unit: row r is query head r % group of token r / group of the item.
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
        group_(p.num_heads / p.num_kv_heads),
        count_(unit.item.num_tokens * group_) {}

  __device__ __forceinline__ int count() const { return count_; }
  __device__ __forceinline__ int Token(int row) const {
    return unit_.item.num_tokens == 1 ? 0 : row / group_;
  }
  __device__ __forceinline__ int Head(int row) const {
    return unit_.kv_head * group_ + row - Token(row) * group_;
  }
  // The token behind the last that a row sees.
  __device__ __forceinline__ int End(int row) const {
    return unit_.item.length - unit_.item.num_tokens + 1 + Token(row);
  }
  // Position of the first query.
  __device__ __forceinline__ int First() const { return unit_.item.length - unit_.item.num_tokens; }
  __device__ __forceinline__ HeadSource Query(int row) const {
    return Source(unit_.item.row + Token(row), Head(row), layer_.q_norm);
  }
  // Of the token at a position of the context that this step computes.
  __device__ __forceinline__ HeadSource Key(int position) const {
    return Source(RowOf(position), p_.num_heads + unit_.kv_head, layer_.k_norm);
  }
  __device__ __forceinline__ HeadSource Value(int position) const {
    return Source(RowOf(position), p_.num_heads + p_.num_kv_heads + unit_.kv_head, nullptr);
  }
  __device__ __forceinline__ int CacheSlot(int position) const {
    const int row = RowOf(position);
    return row == unit_.item.row ? unit_.slot : p_.cache_slots[row];
  }

 private:
  __device__ __forceinline__ int RowOf(int position) const {
    return unit_.item.row + position - First();
  }
  __device__ __forceinline__ HeadSource Source(int row, int head, const bf16* norm) const {
    const int64_t at = int64_t{head} * head_dim_;
    const int position = row == unit_.item.row ? unit_.position : p_.positions[row];
    return HeadSource{qkv_ + row * stride_ + at,
                      layer_.qkv_bias != nullptr ? layer_.qkv_bias + at : nullptr, norm,
                      layer_.cos_sin + int64_t{position} * (layer_.rope_dim / 2), layer_.rope_dim};
  }

  const DecodeStepParams& p_;
  const DecodeStepLayer& layer_;
  const bf16* qkv_;
  const int stride_, head_dim_;
  const AttentionUnit& unit_;
  const int group_, count_;
};
}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
