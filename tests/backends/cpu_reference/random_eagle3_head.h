// An EAGLE-3 head with random weights, in memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/llm_core/checkpoint/checkpoint.h"

namespace nereid::cpu::testing {

// For a model of hidden size 64, 4 heads of 16 and a vocabulary of 512 tokens. Owns the tensors of
// its checkpoint.
class RandomEagle3Head {
 public:
  static constexpr int64_t kHidden = 64, kInner = 96, kDraftVocabulary = 128, kVocabulary = 512;

  explicit RandomEagle3Head(uint32_t seed) : random_(seed) {
    Add("fc.weight", {kHidden, 3 * kHidden});
    Add("norm.weight", {kHidden});
    Add("lm_head.weight", {kDraftVocabulary, kHidden});
    for (const char* norm : {"hidden_norm", "input_layernorm", "post_attention_layernorm"})
      Add(std::string("midlayer.") + norm + ".weight", {kHidden});
    Add("midlayer.self_attn.q_proj.weight", {kHidden, 2 * kHidden});
    Add("midlayer.self_attn.k_proj.weight", {kHidden / 2, 2 * kHidden});
    Add("midlayer.self_attn.v_proj.weight", {kHidden / 2, 2 * kHidden});
    Add("midlayer.self_attn.o_proj.weight", {kHidden, kHidden});
    Add("midlayer.mlp.gate_proj.weight", {kInner, kHidden});
    Add("midlayer.mlp.up_proj.weight", {kInner, kHidden});
    Add("midlayer.mlp.down_proj.weight", {kHidden, kInner});
    std::vector<uint8_t>& bytes = bytes_.emplace_back(8 * kDraftVocabulary);
    for (int64_t i = 0; i < kDraftVocabulary; ++i) {
      const int64_t offset = 3 * i;  // every fourth token
      std::memcpy(bytes.data() + 8 * i, &offset, sizeof(offset));
    }
    tensors_["d2t"] = {llm::CheckpointDataType::kI64, {kDraftVocabulary}, bytes};
  }

  // Valid while the object lives.
  std::shared_ptr<const llm::Checkpoint> checkpoint() const {
    constexpr const char* kConfig = R"({"hidden_size":64,"intermediate_size":96,
      "num_attention_heads":4,"num_key_value_heads":2,"num_hidden_layers":1,"vocab_size":512,
      "draft_vocab_size":128,"max_position_embeddings":512,
      "eagle_aux_hidden_state_layer_ids":[0,1,3]})";
    return std::make_shared<const llm::Checkpoint>(
        llm::Checkpoint::FromParts("head", kConfig, "", tensors_));
  }

 private:
  void Add(const std::string& name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<uint8_t>& bytes = bytes_.emplace_back(4 * count);
    std::normal_distribution<float> normal(shape.size() == 1 ? 1.0f : 0.0f, 0.15f);
    for (int64_t i = 0; i < count; ++i) {
      const float value = normal(random_);
      std::memcpy(bytes.data() + 4 * i, &value, sizeof(value));
    }
    tensors_[name] = {llm::CheckpointDataType::kF32, std::move(shape), bytes};
  }

  std::mt19937 random_;
  std::deque<std::vector<uint8_t>> bytes_;
  llm::TensorMap tensors_;
};

}  // namespace nereid::cpu::testing
