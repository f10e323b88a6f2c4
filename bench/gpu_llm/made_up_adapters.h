// LoRA adapters with random weights, for benchmarks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "backends/llm_core/lora/lora_adapter.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::bench {

// Adapters whose matrices have the model's shapes. They borrow the same random numbers.
class MadeUpAdapters {
 public:
  MadeUpAdapters(const llm::DecoderSpec& spec, int32_t rank)
      : spec_(spec),
        rank_(rank),
        numbers_(static_cast<size_t>(rank) * std::max(spec.intermediate_size, spec.hidden_size)) {
    std::mt19937 random(5);
    for (uint16_t& number : numbers_)  // bf16 of about 0.01, either sign
      number = static_cast<uint16_t>(0x3c00 + random() % 128 + (random() % 2 << 15));
  }

  std::shared_ptr<const llm::LoraAdapter> Make(bool has_mlp) const {
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
           int64_t columns) const {
    const auto matrix = [&](int64_t matrix_rows, int64_t matrix_columns) {
      return llm::LoraMatrix{llm::CheckpointDataType::kBF16, matrix_rows, matrix_columns,
                             reinterpret_cast<const uint8_t*>(numbers_.data())};
    };
    (void)builder.Add({layer, kind}, "made up",
                      {matrix(rank_, columns), matrix(rows, rank_), 1.0f});
  }

  const llm::DecoderSpec spec_;
  const int32_t rank_;
  std::vector<uint16_t> numbers_;
};

}  // namespace nereid::bench
