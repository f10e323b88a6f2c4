// Medusa heads with random weights, in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/backends/cpu_reference/random_tensors.h"

namespace nereid::cpu::testing {

// Three heads for a model of hidden size 64 and a vocabulary of 512 tokens.
class RandomMedusaHeads {
 public:
  static constexpr int64_t kHidden = 64, kVocabulary = 512;

  // `shares_lm_head`: the heads have no projection to the vocabulary.
  explicit RandomMedusaHeads(uint32_t seed, bool shares_lm_head = false)
      : tensors_(seed), shares_lm_head_(shares_lm_head) {
    for (const std::string head : {"0", "1", "2"}) {
      tensors_.Add(head + ".0.linear.weight", {kHidden, kHidden});
      tensors_.Add(head + ".0.linear.bias", {kHidden});
      if (!shares_lm_head) tensors_.Add(head + ".1.weight", {kVocabulary, kHidden});
    }
  }

  // Valid while the object lives.
  std::shared_ptr<const llm::Checkpoint> checkpoint() const {
    return tensors_.Checkpoint(
        "heads", shares_lm_head_ ? R"({"medusa_num_heads":3,"medusa_num_layers":1,"version":"2"})"
                                 : R"({"medusa_num_heads":3,"medusa_num_layers":1})");
  }

 private:
  RandomTensors tensors_;
  const bool shares_lm_head_;
};

}  // namespace nereid::cpu::testing
