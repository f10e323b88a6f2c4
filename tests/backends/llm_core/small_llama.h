// A Llama with hidden size 4 as a checkpoint folder, and helpers that read it. For tests of
// config.json and tensor errors.
#pragma once

#include <gtest/gtest.h>

#include "backends/llm_core/model/architecture.h"
#include "tests/backends/llm_core/checkpoint_files.h"
#include "tests/support/test_folder.h"

namespace nereid::llm::testing {

inline constexpr const char* kConfig = R"({"model_type":"llama","vocab_size":8,"hidden_size":4,
  "intermediate_size":6,"num_attention_heads":2,"num_key_value_heads":1,"num_hidden_layers":1,
  "max_position_embeddings":32,"tie_word_embeddings":true,"eos_token_id":3})";

inline std::vector<TestTensor> LlamaTensors() {
  return {{"model.embed_tokens.weight", {8, 4}},
          {"model.norm.weight", {4}},
          {"model.layers.0.input_layernorm.weight", {4}},
          {"model.layers.0.post_attention_layernorm.weight", {4}},
          {"model.layers.0.self_attn.q_proj.weight", {4, 4}},
          {"model.layers.0.self_attn.k_proj.weight", {2, 4}},
          {"model.layers.0.self_attn.v_proj.weight", {2, 4}},
          {"model.layers.0.self_attn.o_proj.weight", {4, 4}},
          {"model.layers.0.mlp.gate_proj.weight", {6, 4}},
          {"model.layers.0.mlp.up_proj.weight", {6, 4}},
          {"model.layers.0.mlp.down_proj.weight", {4, 6}}};
}

inline Result<DecoderSpec> ReadSpec(const TestFolder& folder) {
  NEREID_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder.path()));
  NEREID_ASSIGN_OR_RETURN(const DecoderModel model, ReadDecoder(checkpoint));
  return model.spec;
}

inline std::string MessageOf(const TestFolder& folder) {
  const Result<DecoderSpec> spec = ReadSpec(folder);
  return spec.ok() ? "" : spec.status().message();
}

inline std::string MessageForConfig(const std::string& config) {
  TestFolder folder;
  folder.Write("config.json", config);
  folder.Write("model.safetensors", SafetensorsBytes(LlamaTensors()));
  return MessageOf(folder);
}

inline std::string WithKey(const std::string& pair) {
  std::string config = kConfig;
  return config.substr(0, config.rfind('}')) + "," + pair + "}";
}

inline DecoderSpec SpecOf(const std::string& config) {
  TestFolder folder;
  folder.Write("config.json", config);
  const auto checkpoint = Checkpoint::OpenConfig(folder.path());
  const auto model = ReadDecoderSpec(*checkpoint);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? model->spec : DecoderSpec{};
}

}  // namespace nereid::llm::testing
