// LoRA adapters with random weights, for benchmarks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "backends/llm_core/lora/lora_adapter.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::bench {

// Adapters whose matrices have the model's shapes. They are views of the same random numbers, one
// matrix after the other, which are too many for the processor's caches.
class MadeUpAdapters {
 public:
  // `size_bytes`: of the numbers, a multiple of 2 MiB.
  MadeUpAdapters(const llm::DecoderSpec& spec, int32_t rank, size_t size_bytes)
      : spec_(spec), rank_(rank), numbers_(size_bytes / 2) {
    std::mt19937 random(5);
    const size_t num_drawn = 1 << 20;
    for (size_t i = 0; i < num_drawn; ++i)  // bf16 of about 0.01, either sign
      numbers_[i] = static_cast<uint16_t>(0x3c00 + random() % 128 + (random() % 2 << 15));
    for (size_t i = num_drawn; i < numbers_.size(); i += num_drawn)
      std::copy_n(numbers_.begin(), num_drawn, numbers_.begin() + static_cast<int64_t>(i));
  }

  std::shared_ptr<const llm::LoraAdapter> Make(bool has_mlp) {
    using enum llm::WeightKind;
    llm::LoraBuilder builder("made up", spec_.num_layers());
    for (int32_t layer = 0; layer < spec_.num_layers(); ++layer) {
      const int64_t hidden = spec_.hidden_size, inner = spec_.intermediate_size;
      Add(builder, layer, kQ, spec_.q_size(), hidden);
      Add(builder, layer, kK, spec_.kv_size(), hidden);
      Add(builder, layer, kV, spec_.kv_size(), hidden);
      Add(builder, layer, kAttentionOut, hidden, spec_.q_size());
      if (!has_mlp) continue;
      Add(builder, layer, kGate, inner, hidden);
      Add(builder, layer, kUp, inner, hidden);
      Add(builder, layer, kDown, hidden, inner);
    }
    return builder.Finish();
  }

 private:
  void Add(llm::LoraBuilder& builder, int32_t layer, llm::WeightKind kind, int64_t rows,
           int64_t columns) {
    const auto matrix = [&](int64_t matrix_rows, int64_t matrix_columns) {
      const auto count = static_cast<size_t>(matrix_rows * matrix_columns);
      if (next_ + count > numbers_.size()) next_ = 0;
      const uint16_t* const from = numbers_.data() + std::exchange(next_, next_ + count);
      return llm::LoraMatrix{llm::CheckpointDataType::kBF16, matrix_rows, matrix_columns,
                             reinterpret_cast<const uint8_t*>(from)};
    };
    (void)builder.Add({layer, kind}, "made up",
                      {matrix(rank_, columns), matrix(rows, rank_), 1.0f});
  }

  const llm::DecoderSpec spec_;
  const int32_t rank_;
  std::vector<uint16_t> numbers_;
  size_t next_ = 0;  // of the next matrix
};

}  // namespace nereid::bench
