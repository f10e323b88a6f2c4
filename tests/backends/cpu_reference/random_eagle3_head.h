// An EAGLE-3 head with random weights, in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/backends/cpu_reference/random_tensors.h"

namespace nereid::cpu::testing {

// For a model of hidden size 64, 4 heads of 16 and a vocabulary of 512 tokens.
class RandomEagle3Head {
 public:
  static constexpr int64_t kHidden = 64, kInner = 96, kDraftVocabulary = 128, kVocabulary = 512;

  explicit RandomEagle3Head(uint32_t seed) : tensors_(seed) {
    tensors_.Add("fc.weight", {kHidden, 3 * kHidden});
    tensors_.Add("norm.weight", {kHidden}, 1.0f);
    tensors_.Add("lm_head.weight", {kDraftVocabulary, kHidden});
    for (const char* norm : {"hidden_norm", "input_layernorm", "post_attention_layernorm"})
      tensors_.Add(std::string("midlayer.") + norm + ".weight", {kHidden}, 1.0f);
    tensors_.Add("midlayer.self_attn.q_proj.weight", {kHidden, 2 * kHidden});
    tensors_.Add("midlayer.self_attn.k_proj.weight", {kHidden / 2, 2 * kHidden});
    tensors_.Add("midlayer.self_attn.v_proj.weight", {kHidden / 2, 2 * kHidden});
    tensors_.Add("midlayer.self_attn.o_proj.weight", {kHidden, kHidden});
    tensors_.Add("midlayer.mlp.gate_proj.weight", {kInner, kHidden});
    tensors_.Add("midlayer.mlp.up_proj.weight", {kInner, kHidden});
    tensors_.Add("midlayer.mlp.down_proj.weight", {kHidden, kInner});
    std::vector<int64_t> offsets(kDraftVocabulary);
    for (int64_t i = 0; i < kDraftVocabulary; ++i) offsets[i] = 3 * i;  // every fourth token
    tensors_.AddIds("d2t", offsets);
  }

  // Valid while the object lives.
  std::shared_ptr<const llm::Checkpoint> checkpoint() const {
    constexpr const char* kConfig = R"({"hidden_size":64,"intermediate_size":96,
      "num_attention_heads":4,"num_key_value_heads":2,"num_hidden_layers":1,"vocab_size":512,
      "draft_vocab_size":128,"max_position_embeddings":512,
      "eagle_aux_hidden_state_layer_ids":[0,1,3]})";
    return tensors_.Checkpoint("head", kConfig);
  }

 private:
  RandomTensors tensors_;
};

}  // namespace nereid::cpu::testing
