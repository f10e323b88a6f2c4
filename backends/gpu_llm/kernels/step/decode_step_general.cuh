// Loads and norms the inputs of matrix products for StepLayers::kGeneral, in a fused decode step.
// If a layer norms what attention and MLP compute (post norms), a block of threads first adds that
// norm to the residual, and then norms the sum. All of this happens before the input is converted,
// so that a product needs no factor of the norm. In a step with one row every block norms it. In a
// step with several rows one block norms each row and stores it in the exchange for all others,
// because it takes longer to norm all rows in every block. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/step/decode_step_input.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

// The sum of a value of each warp. `row`: of SharedState::squares; calls with the same have a
// SyncConsumers() between them.
__device__ __forceinline__ float ConsumerSum(SharedState& shared, int row, float of_warp) {
  float(&all)[kWarps] = shared.squares[row];
  if (threadIdx.x % 32 == 0) all[threadIdx.x / 32] = of_warp;
  SyncConsumers();
  float sum = 0.0f;
#pragma unroll
  for (const float value : all) sum += value;
  return sum;
}

// A row of an input, of which lanes have the columns of a RowShare. kOneRow: the step has one row.
template <WeightFormat kFormat, int kKTiles, bool kOneRow>
class GeneralRow {
  using Share = RowShare<kFormat, kKTiles>;
  static constexpr int kEach = Share::kEach;

 public:
  // Begins to load all weights, and waits until the row is ready. `in`, `update`: of this row.
  __device__ __forceinline__ GeneralRow(const DecodeStepParams& p, const GeneralStepGemm& gemm,
                                        const bf16* in, const bf16* update,
                                        const SharedState& shared)
      : depth_(gemm.depth), has_bias_(gemm.norm_bias != nullptr) {
    norm_.Load(gemm.norm, depth_);
    bias_or_update_norm_.Load(update != nullptr ? gemm.update_norm : gemm.norm_bias, depth_);
    const auto load = [&] { return in_.Load(in, depth_); };
    if (gemm.in_is_complete) {
      load();
    } else {
      SpinUntilReady(p, shared, load);
    }
    // The update is the product before, and ready later than what it is added to.
    if (update != nullptr) SpinUntilReady(p, shared, [&] { return update_.Load(update, depth_); });
    in_.Unpack(values_);
  }

  // values += the norm of the update, rounded to bf16. Where all blocks have the row, each stores
  // some of the sums.
  __device__ __forceinline__ void AddUpdate(float epsilon, bf16* to, SharedState& shared) {
    float update[kEach][8], squares = 0.0f;
    update_.Unpack(update);
    for_each([&](int i, int j) { squares += update[i][j] * update[i][j]; });
    const float factor = Factor(ConsumerSum(shared, 0, WarpSum(squares)), epsilon);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (!Share::HasFragment(i, depth_)) break;
      float weights[8];
      Unpack8(bias_or_update_norm_.words[i], weights);
#pragma unroll
      for (int j = 0; j < 8; ++j) values_[i][j] += update[i][j] * factor * weights[j];
      const uint4 packed = Pack8(values_[i]);
      Unpack8(packed, values_[i]);
      const int column = Share::Column(i);
      if (kOneRow && column / 8 % static_cast<int>(gridDim.x) != blockIdx.x) continue;
      if (column < depth_) StoreWords4(to + column, packed);
    }
  }
  __device__ __forceinline__ void Norm(llm::NormKind kind, float epsilon, SharedState& shared) {
    float mean = 0.0f, squares = 0.0f;
    if (kind == llm::NormKind::kLayer) {
      float sum = 0.0f;
      for_each([&](int i, int j) { sum += values_[i][j]; });
      mean = ConsumerSum(shared, 1, WarpSum(sum)) / static_cast<float>(depth_);
    }
    for_each([&](int i, int j) {
      const float difference = Share::Column(i) < depth_ ? values_[i][j] - mean : 0.0f;
      squares += difference * difference;
    });
    const float factor = Factor(ConsumerSum(shared, 2, WarpSum(squares)), epsilon);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (!Share::HasFragment(i, depth_)) break;
      float weights[8], biases[8];
      Unpack8(norm_.words[i], weights);
      Unpack8(bias_or_update_norm_.words[i], biases);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        values_[i][j] =
            (values_[i][j] - mean) * factor * weights[j] + (has_bias_ ? biases[j] : 0.0f);
    }
  }
  // Stores the row in bf16.
  __device__ __forceinline__ void Store(bf16* to) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int column = Share::Column(i);
      if (column < depth_) StoreWords4(to + column, Pack8(values_[i]));
    }
  }
  __device__ __forceinline__ void Take(SharedState& shared,
                                       KTile<kFormat, true> (&k_tiles)[kKTiles]) const {
    Share::ExchangeValues(values_, shared, k_tiles, depth_);
  }

 private:
  __device__ static __forceinline__ void StoreWords4(bf16* to, const uint4& packed) {
    const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) StoreWord(to + 2 * w, words[w]);
  }
  template <typename Use>
  __device__ __forceinline__ void for_each(const Use& use) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) use(i, j);
    }
  }
  __device__ __forceinline__ float Factor(float squares, float epsilon) const {
    return rsqrtf(squares / static_cast<float>(depth_) + epsilon);
  }

  const int depth_;
  const bool has_bias_;
  Share in_, update_;
  // The weights of the norm, and either its biases or the weights of the norm of the update.
  typename Share::Norm norm_, bias_or_update_norm_;
  float values_[kEach][8];
};

template <WeightFormat kFormat, int kResident>
__device__ __forceinline__ void LoadResident(const DecodeStepParams& p, const GeneralStepGemm& gemm,
                                             Consumer& consumer,
                                             ResidentInput<kFormat, kResident, true>& input) {
  SharedState& shared = consumer.shared();
  GeneralRow<kFormat, ResidentInput<kFormat, kResident, true>::kKTiles, true> row(
      p, gemm, gemm.in, gemm.update, shared);
  if (gemm.update != nullptr) row.AddUpdate(p.epsilon, gemm.updated, shared);
  if (gemm.norm != nullptr) row.Norm(p.norm_kind, p.epsilon, shared);
  row.Take(shared, input.k_tiles);
}

// Norms this block's part of several rows, and stores them for all blocks. The last block norms row
// 0, the one before it row 1, and so on, because the last blocks have the fewest tiles to multiply.
template <WeightFormat kFormat, int kKTiles>
__device__ __forceinline__ void NormRows(const DecodeStepParams& p, const GeneralStepGemm& gemm,
                                         SharedState& shared) {
  const int grid = static_cast<int>(gridDim.x);
  for (int i = grid - 1 - static_cast<int>(blockIdx.x); i < p.num_rows; i += grid) {
    const int64_t index = gemm.rows != nullptr ? gemm.rows[i] : i;
    const int64_t at = index * gemm.exchange_stride;
    const bf16* const update = gemm.update != nullptr ? gemm.update + at : nullptr;
    GeneralRow<kFormat, kKTiles, false> row(p, gemm, gemm.in + index * gemm.in_stride, update,
                                            shared);
    if (update != nullptr) row.AddUpdate(p.epsilon, gemm.updated + at, shared);
    if (gemm.norm != nullptr) row.Norm(p.norm_kind, p.epsilon, shared);
    row.Store(gemm.normed + int64_t{i} * gemm.exchange_stride);
    SyncConsumers();  // before the next row's sums
  }
}

template <WeightFormat kFormat, int kResident>
__device__ __forceinline__ void LoadResident(const DecodeStepParams& p, const GeneralStepGemm& gemm,
                                             Consumer& consumer,
                                             ResidentInput<kFormat, kResident, false>& input) {
  SharedState& shared = consumer.shared();
  auto& k_tiles = input.k_tiles;
  if (gemm.norm == nullptr && gemm.update == nullptr) {
    LoadRow<kFormat>(p, shared, InputRow(p, gemm), gemm.depth, gemm.in_is_complete, k_tiles);
  } else {
    NormRows<kFormat, ResidentInput<kFormat, kResident, false>::kKTiles>(p, gemm, shared);
    const int row = static_cast<int>(threadIdx.x) % 32 / 4;
    const bf16* const normed =
        row < p.num_rows ? gemm.normed + int64_t{row} * gemm.exchange_stride : nullptr;
    LoadRow<kFormat>(p, shared, normed, gemm.depth, false, k_tiles);
  }
  PrepareKTiles<kFormat>(k_tiles);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
