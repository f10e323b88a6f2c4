// The exchange of a fused decode step: activations in global memory that blocks of threads write
// for each other. A word says itself whether it is ready, so that no block waits for more than the
// words it reads. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/step/decode_step_state.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

// Two bf16 NaNs that no conversion produces: marks a word of DecodeStepParams::exchange as not
// ready.
constexpr uint32_t kNotReady = 0xffffffffu;

__device__ __forceinline__ uint4 LoadWords4(const void* from) {
  uint4 words;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
}
__device__ __forceinline__ uint2 LoadWords2(const void* from) {
  uint2 words;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0,%1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "l"(from));
  return words;
}
__device__ __forceinline__ uint32_t LoadWord(const void* from) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from));
  return word;
}
__device__ __forceinline__ void StoreWord(void* to, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
__device__ __forceinline__ bool IsReady(const uint4& words) {
  return words.x != kNotReady && words.y != kNotReady && words.z != kNotReady &&
         words.w != kNotReady;
}
__device__ __forceinline__ bool IsReady(const uint2& words) {
  return words.x != kNotReady && words.y != kNotReady;
}

// Spins until `poll` returns true for all threads of the warp; called by the whole warp. After a
// timeout the launch fails (FinishLaunch).
template <typename Poll>
__device__ __forceinline__ void SpinUntilReady(const DecodeStepParams& p, const SharedState& shared,
                                               const Poll& poll) {
  constexpr uint32_t kPollsPerClockRead = 1 << 16;
  constexpr uint64_t kTimeoutNs = 30'000'000'000;
  for (uint32_t polls = 1; !__all_sync(0xffffffffu, poll()); ++polls) {
    if (polls % kPollsPerClockRead != 0) continue;
    if (NowNs() - shared.start_ns > kTimeoutNs) StoreWord(&p.state->timed_out, 1);
    if (__any_sync(0xffffffffu, LoadWord(&p.state->timed_out) != 0)) return;
  }
}

// Called by one thread at a block's end. The last block to end records for the next launch which
// set of the exchange it uses, and how many rows of the other one it has to clear.
__device__ __forceinline__ void FinishLaunch(const DecodeStepParams& p, const SharedState& shared) {
  DecodeStepState& state = *p.state;
  if (LoadWord(&state.timed_out) != 0) __trap();
  if (atomicAdd(&state.num_ended, 1u) != gridDim.x - 1) return;
  state.num_ended = 0;
  state.num_rows[shared.set] = p.num_rows;
  state.num_rows[1 - shared.set] = 0;
  state.set = 1 - shared.set;
}

// Exchange memory of a layer; rows are `stride` values apart.
struct LayerExchange {
  bf16 *qkv, *attention, *middle, *gated, *residual;
  // With StepLayers::kGeneral, in a step with several rows: the normed inputs of q, k and v, and of
  // the MLP. `normed` of layer num_layers is the normed input of the LM head.
  bf16 *normed, *mlp_normed;
  float* scores;
  bf16 *attention_product, *mlp_product;  // with DecodeStepParams::has_post_norms
  int stride;                             // in bf16
};
__device__ __forceinline__ LayerExchange ExchangeOf(const DecodeStepParams& p, uint32_t set,
                                                    int layer) {
  const int columns = DecodeStepColumns(p), q_size = p.num_heads * p.head_dim;
  LayerExchange to;
  to.stride = DecodeStepRowColumns(p);
  to.normed = p.exchange + int64_t{set * kDecodeStepRows} * to.stride + layer * columns;
  to.mlp_normed = to.normed + NormedColumns(p);
  to.qkv = to.mlp_normed + NormedColumns(p);
  to.attention = to.qkv + q_size + 2 * p.num_kv_heads * p.head_dim;
  to.middle = to.attention + q_size;
  to.gated = to.middle + p.hidden_size;
  to.residual = to.gated + DecodeStepInner(p);
  to.scores = reinterpret_cast<float*>(to.residual + p.hidden_size);
  to.attention_product = to.residual + p.hidden_size + 2 * DecodeStepScores(p);
  to.mlp_product = to.attention_product + p.hidden_size;
  return to;
}

// Clears the exchange. The threads of all blocks whose number in their block is `first` or larger
// divide the words among them.
class ExchangeClearing {
 public:
  __device__ ExchangeClearing(const DecodeStepParams& p, const SharedState& shared, int first)
      : p_(p),
        shared_(shared),
        number_(static_cast<int>(blockIdx.x * (kThreads - first) + threadIdx.x) - first),
        count_(static_cast<int>(gridDim.x) * (kThreads - first)) {}

  // The attention of rows that are padding, since no unit computes it. This launch reads it.
  __device__ __forceinline__ void ClearPadding() const {
    for (int row = 0; row < p_.num_rows; ++row) {
      if (p_.cache_slots[row] >= 0) continue;
      for (int layer = 0; layer < p_.num_layers; ++layer) {
        const LayerExchange to = ExchangeOf(p_, shared_.set, layer);
        Fill(to.attention + row * to.stride, p_.num_heads * p_.head_dim, 0);
      }
    }
  }
  // Marks the words of the other set as not ready, for the next launch.
  __device__ __forceinline__ void ClearOtherSet() const {
    if (p_.num_layers == 0) return;
    const LayerExchange other = ExchangeOf(p_, 1 - shared_.set, 0);
    Fill(other.normed, int64_t{shared_.num_rows_to_clear} * other.stride, kNotReady);
  }

 private:
  __device__ __forceinline__ void Fill(bf16* to, int64_t num_values, uint32_t word) const {
    auto* chunks = reinterpret_cast<uint4*>(to);
    for (int64_t i = number_; i < num_values / 8; i += count_) chunks[i] = {word, word, word, word};
  }

  const DecodeStepParams& p_;
  const SharedState& shared_;
  const int number_, count_;  // of this thread, of all of them
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
