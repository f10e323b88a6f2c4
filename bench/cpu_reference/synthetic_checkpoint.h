// Writes a Llama checkpoint of any shape with random weights, bf16 or int4, for benchmarks.
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
  // Linear layers and head are int4 with groups of 128 columns, in the compressed-tensors format.
  bool is_int4 = false;

  // Multiply-adds of one token in the layers, and in the head.
  int64_t layer_macs() const {
    const int64_t kv = hidden / heads * kv_heads;
    return layers * (2 * hidden * hidden + 2 * kv * hidden + 3 * hidden * inner);
  }
  int64_t head_macs() const { return vocab * hidden; }
};

struct SyntheticTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t element_bytes;
};

inline std::string Dims(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t dim : shape) text += (text.empty() ? "" : ",") + std::to_string(dim);
  return "[" + text + "]";
}

// Adds the matrix of a linear layer or head `name`, as one tensor or two.
inline void AddMatrix(std::vector<SyntheticTensor>& tensors, const LlamaShape& s,
                      const std::string& name, int64_t rows, int64_t columns) {
  if (!s.is_int4) {
    tensors.push_back({name + ".weight", "BF16", {rows, columns}, 2});
    return;
  }
  tensors.push_back({name + ".weight_packed", "I32", {rows, columns / 8}, 4});
  tensors.push_back({name + ".weight_scale", "BF16", {rows, columns / 128}, 2});
}

inline std::vector<SyntheticTensor> TensorsOf(const LlamaShape& s) {
  const int64_t kv = s.hidden / s.heads * s.kv_heads;
  std::vector<SyntheticTensor> tensors = {
      {"model.embed_tokens.weight", "BF16", {s.vocab, s.hidden}, 2},
      {"model.norm.weight", "BF16", {s.hidden}, 2}};
  // Otherwise the head is tied to the embedding.
  if (s.is_int4) AddMatrix(tensors, s, "lm_head", s.vocab, s.hidden);
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    tensors.push_back({p + "input_layernorm.weight", "BF16", {s.hidden}, 2});
    tensors.push_back({p + "post_attention_layernorm.weight", "BF16", {s.hidden}, 2});
    AddMatrix(tensors, s, p + "self_attn.q_proj", s.hidden, s.hidden);
    AddMatrix(tensors, s, p + "self_attn.k_proj", kv, s.hidden);
    AddMatrix(tensors, s, p + "self_attn.v_proj", kv, s.hidden);
    AddMatrix(tensors, s, p + "self_attn.o_proj", s.hidden, s.hidden);
    AddMatrix(tensors, s, p + "mlp.gate_proj", s.inner, s.hidden);
    AddMatrix(tensors, s, p + "mlp.up_proj", s.inner, s.hidden);
    AddMatrix(tensors, s, p + "mlp.down_proj", s.hidden, s.inner);
  }
  return tensors;
}

inline void WriteConfig(const LlamaShape& s, const std::filesystem::path& folder) {
  std::ofstream out(folder / "config.json");
  out << R"({"model_type":"llama","tie_word_embeddings":)" << (s.is_int4 ? "false" : "true")
      << ",\"vocab_size\":" << s.vocab << ",\"hidden_size\":" << s.hidden
      << ",\"intermediate_size\":" << s.inner << ",\"num_attention_heads\":" << s.heads
      << ",\"num_key_value_heads\":" << s.kv_heads << ",\"num_hidden_layers\":" << s.layers
      << ",\"max_position_embeddings\":" << s.max_positions;
  if (s.is_int4) {
    out << R"(,"quantization_config":{"quant_method":"compressed-tensors",)"
        << R"("format":"pack-quantized","config_groups":{"group_0":{"weights":{"num_bits":4,)"
        << R"("type":"int","symmetric":true,"strategy":"group","group_size":128}}}})";
  }
  out << "}";
}

// Random words whose bf16 halves are +-(0.03 .. 0.06). Suitable as norms, weights and scales;
// packed int4 can be any bits.
inline void WriteRandom(std::ofstream& out, int64_t bytes) {
  std::mt19937 random(1);
  std::vector<uint16_t> chunk(1 << 16);
  for (int64_t left = bytes / 2; left > 0; left -= static_cast<int64_t>(chunk.size())) {
    for (uint16_t& bits : chunk) {
      const uint32_t r = random();
      bits = static_cast<uint16_t>((r & 0x8000u) | 0x3d00u | (r & 0x7fu));
    }
    const int64_t count = std::min<int64_t>(left, static_cast<int64_t>(chunk.size()));
    out.write(reinterpret_cast<const char*>(chunk.data()), count * 2);
  }
}

inline void WriteLlama(const LlamaShape& s, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  WriteConfig(s, folder);
  std::string header;
  int64_t offset = 0;
  for (const SyntheticTensor& tensor : TensorsOf(s)) {
    int64_t bytes = tensor.element_bytes;
    for (const int64_t dim : tensor.shape) bytes *= dim;
    header += (header.empty() ? "{\"" : ",\"") + tensor.name + R"(":{"dtype":")" + tensor.dtype +
              R"(","shape":)" + Dims(tensor.shape) + ",\"data_offsets\":[" +
              std::to_string(offset) + "," + std::to_string(offset + bytes) + "]}";
    offset += bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream out(folder / "model.safetensors", std::ios::binary);
  const uint64_t header_bytes = header.size();
  out.write(reinterpret_cast<const char*>(&header_bytes), 8);
  out << header;
  WriteRandom(out, offset);
}

}  // namespace nereid::bench
