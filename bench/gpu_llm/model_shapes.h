// Decoders of known models by name, for benchmarks with random weights. bench/gpu_llm/shapes has
// more of them as config.json.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::bench {

inline llm::DecoderSpec Llama(int32_t hidden, int32_t layers, int32_t heads, int32_t kv_heads,
                              int32_t inner, int32_t vocab) {
  llm::DecoderSpec spec;
  spec.architecture = "llama";
  spec.vocab_size = vocab;
  spec.hidden_size = hidden;
  spec.intermediate_size = inner;
  spec.num_heads = heads;
  spec.num_kv_heads = kv_heads;
  spec.head_dim = hidden / heads;
  spec.max_positions = 16384;
  spec.norm.epsilon = 1e-5f;
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  llm::RopeSpec rope;
  rope.dim = spec.head_dim;
  for (int32_t i = 0; i < rope.dim / 2; ++i)
    rope.inv_freq.push_back(
        std::pow(500000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(rope.dim)));
  spec.ropes = {rope};
  spec.layers.resize(layers);
  return spec;
}

// Mixture of experts in every layer.
inline llm::DecoderSpec WithExperts(llm::DecoderSpec spec, int32_t count, int32_t a_token,
                                    int32_t inner) {
  spec.moe.num_experts = count;
  spec.moe.experts_per_token = a_token;
  spec.moe.intermediate_size = inner;
  for (llm::LayerSpec& layer : spec.layers) layer.is_moe = true;
  return spec;
}

inline llm::DecoderSpec Qwen3WithExperts() {
  llm::DecoderSpec spec = Llama(2048, 48, 16, 4, 6144, 151936);
  spec.num_heads = 32;
  spec.qk_norm = true;
  return WithExperts(std::move(spec), 128, 8, 768);
}

// With biases, LayerNorms, GELU and windows.
inline llm::DecoderSpec StarCoder2(llm::DecoderSpec spec) {
  spec.norm.kind = llm::NormKind::kLayer;
  spec.norm.has_bias = true;
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = true;
  spec.mlp = llm::MlpKind::kPlain;
  spec.activation = llm::Activation::kGeluTanh;
  for (llm::LayerSpec& layer : spec.layers) layer.sliding_window = 4096;
  return spec;
}

// Ends the program with an error if there is no such name.
inline llm::DecoderSpec Shape(const std::string& name) {
  const std::map<std::string, llm::DecoderSpec> shapes = {
      {"tiny", Llama(512, 4, 8, 2, 1024, 4096)},
      {"1b", Llama(2048, 16, 32, 8, 8192, 128256)},
      {"8b", Llama(4096, 32, 32, 8, 14336, 128256)},
      {"34b", Llama(8192, 48, 64, 8, 22016, 32000)},
      {"70b", Llama(8192, 80, 64, 8, 28672, 128256)},
      {"phi-3-mini", Llama(3072, 32, 32, 32, 8192, 32064)},
      {"starcoder2-3b", StarCoder2(Llama(3072, 30, 24, 2, 12288, 49152))},
      {"starcoder2-15b", StarCoder2(Llama(6144, 40, 48, 4, 24576, 49152))},
      {"mixtral-8x7b", WithExperts(Llama(4096, 32, 32, 8, 14336, 32000), 8, 2, 14336)},
      {"qwen3-30b-a3b", Qwen3WithExperts()},
  };
  if (const auto found = shapes.find(name); found != shapes.end()) return found->second;
  std::printf("error: no shape is called \"%s\", but", name.c_str());
  for (const auto& [known, spec] : shapes) std::printf(" %s", known.c_str());
  std::printf("\n");
  std::exit(1);
}

}  // namespace nereid::bench
