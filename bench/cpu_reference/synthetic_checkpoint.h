// Writes a Llama checkpoint of any shape with random bf16 weights, as benchmarks need it.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace nereid::bench {

struct LlamaShape {
  int64_t hidden = 384, layers = 8, heads = 6, kv_heads = 6, inner = 1024, vocab = 4096;
  int64_t max_positions = 4096;
};

inline std::string Dims(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t dim : shape) text += (text.empty() ? "" : ",") + std::to_string(dim);
  return "[" + text + "]";
}

inline void WriteLlama(const LlamaShape& s, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const int64_t head_dim = s.hidden / s.heads;
  std::ofstream(folder / "config.json")
      << R"({"model_type":"llama","tie_word_embeddings":true,"vocab_size":)" << s.vocab
      << ",\"hidden_size\":" << s.hidden << ",\"intermediate_size\":" << s.inner
      << ",\"num_attention_heads\":" << s.heads << ",\"num_key_value_heads\":" << s.kv_heads
      << ",\"num_hidden_layers\":" << s.layers << ",\"max_position_embeddings\":" << s.max_positions
      << "}";
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {
      {"model.embed_tokens.weight", {s.vocab, s.hidden}}, {"model.norm.weight", {s.hidden}}};
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    const int64_t kv = s.kv_heads * head_dim;
    tensors.insert(tensors.end(), {{p + "input_layernorm.weight", {s.hidden}},
                                   {p + "post_attention_layernorm.weight", {s.hidden}},
                                   {p + "self_attn.q_proj.weight", {s.hidden, s.hidden}},
                                   {p + "self_attn.k_proj.weight", {kv, s.hidden}},
                                   {p + "self_attn.v_proj.weight", {kv, s.hidden}},
                                   {p + "self_attn.o_proj.weight", {s.hidden, s.hidden}},
                                   {p + "mlp.gate_proj.weight", {s.inner, s.hidden}},
                                   {p + "mlp.up_proj.weight", {s.inner, s.hidden}},
                                   {p + "mlp.down_proj.weight", {s.hidden, s.inner}}});
  }
  std::string header;
  int64_t offset = 0;
  for (const auto& [name, shape] : tensors) {
    int64_t bytes = 2;
    for (const int64_t dim : shape) bytes *= dim;
    header += (header.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":"BF16","shape":)" +
              Dims(shape) + ",\"data_offsets\":[" + std::to_string(offset) + "," +
              std::to_string(offset + bytes) + "]}";
    offset += bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream out(folder / "model.safetensors", std::ios::binary);
  const uint64_t header_bytes = header.size();
  out.write(reinterpret_cast<const char*>(&header_bytes), 8);
  out << header;
  std::mt19937 random(1);
  std::vector<uint16_t> chunk(1 << 16);
  for (int64_t left = offset / 2; left > 0; left -= static_cast<int64_t>(chunk.size())) {
    for (uint16_t& bits : chunk) {  // +-(0.03 .. 0.06)
      const uint32_t r = random();
      bits = static_cast<uint16_t>((r & 0x8000u) | 0x3d00u | (r & 0x7fu));
    }
    const int64_t count = std::min<int64_t>(left, static_cast<int64_t>(chunk.size()));
    out.write(reinterpret_cast<const char*>(chunk.data()), count * 2);
  }
}

}  // namespace nereid::bench
