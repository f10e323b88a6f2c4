// Writes the smallest checkpoints for tests, and writes and reads files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace nereid::repo {

inline void WriteFile(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A safetensors file of one tensor, whose header declares `declared_bytes`.
inline std::string SafetensorsBytes(size_t declared_bytes, size_t held_bytes) {
  const std::string header = R"({"w":{"dtype":"U8","shape":[)" + std::to_string(declared_bytes) +
                             R"(],"data_offsets":[0,)" + std::to_string(declared_bytes) + "]}}";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  return bytes + header + std::string(held_bytes, '\1');
}

// The smallest checkpoint that the tool accepts.
inline void WriteCheckpoint(const std::string& folder) {
  const std::filesystem::path path(folder);
  WriteFile(path / "config.json",
            R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":32,
                "max_position_embeddings":128})");
  WriteFile(path / "generation_config.json", R"({"eos_token_id":2})");
  WriteFile(path / "tokenizer.json", "{}");
  WriteFile(path / "model.safetensors", SafetensorsBytes(4, 4));
}

// The same with every tensor of a decoder with one layer, so that it can be loaded.
inline void WriteSoundCheckpoint(const std::string& folder) {
  WriteCheckpoint(folder);
  const std::filesystem::path path(folder);
  WriteFile(path / "config.json",
            R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":32,
                "max_position_embeddings":128,"hidden_size":4,"intermediate_size":4,
                "num_attention_heads":1,"num_key_value_heads":1,"num_hidden_layers":1,
                "rms_norm_eps":1e-5})");
  std::string header;
  size_t end = 0;
  const auto add = [&](const std::string& name, const std::string& shape, size_t num_elements) {
    header += (header.empty() ? "{\"" : ",\"") + name + R"(.weight":{"dtype":"F32","shape":[)" +
              shape + R"(],"data_offsets":[)" + std::to_string(end) + ",";
    end += num_elements * sizeof(float);
    header += std::to_string(end) + "]}";
  };
  const std::string layer = "model.layers.0.";
  add("model.embed_tokens", "32,4", 128);
  add("lm_head", "32,4", 128);
  for (const std::string& norm :
       {std::string("model.norm"), layer + "input_layernorm", layer + "post_attention_layernorm"}) {
    add(norm, "4", 4);
  }
  for (const char* matrix : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    add(layer + matrix, "4,4", 16);
  }
  header += "}";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size() % 256);
  bytes[1] = static_cast<char>(header.size() / 256);
  WriteFile(path / "model.safetensors", bytes + header + std::string(end, '\0'));
}

}  // namespace nereid::repo
