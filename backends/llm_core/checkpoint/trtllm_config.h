// Converts config.json of a TensorRT-LLM checkpoint to the Hugging Face config.json of the same
// decoder, and reads how tensors are distributed over the ranks. [load thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::llm {

// Naming schemes of the converted tensors. Parts that Hugging Face fuses (q, k, v, or gate, up)
// stay separate.
enum class TrtLlmNaming : uint8_t {
  kLlama,
  kPhi3,        // as Llama, with fused up and gate in TensorRT-LLM
  kStarCoder2,  // as Llama, with a plain MLP
  kGpt,         // transformer.h.N, with a plain MLP
};

// The values of config.json that the distribution of tensors depends on.
struct TrtLlmLayout {
  TrtLlmNaming names = TrtLlmNaming::kLlama;
  std::string_view experts;  // name prefix, "block_sparse_moe." or "mlp."; empty: no experts
  int32_t tp = 1, pp = 1;
  int32_t moe_tp = 1, moe_ep = 1;
  int32_t num_layers = 0, vocab_size = 0;
  int32_t num_experts = 0;
  int64_t q_rows = 0, kv_rows = 0;  // of one rank
  int32_t kv_copies = 1;            // ranks with the same key/value heads
  bool splits_embedding = false;
  bool embedding_by_columns = false;
};

struct TrtLlmConfig {
  TrtLlmLayout layout;
  // As Hugging Face would write it, with three extensions: quant_method "trtllm_awq";
  // "norm_weight_offset", because Gemma's norms are stored with 1 added; and "split_projections",
  // because projections that Hugging Face fuses are separate. GPT-2's matrices are [out, in], and
  // StarCoder is a GPT-2 with "num_key_value_heads".
  std::string config_json;
};

// Supported: Llama, Mistral, Mixtral, Qwen2, Qwen3, Qwen3-MoE, Phi-3, Gemma 2 and 3, GPT (GPT-2,
// StarCoder, StarCoder2), in fp32, fp16 or bf16; without experts also W4A16_AWQ. Others are
// UNSUPPORTED by name.
Result<TrtLlmConfig> ReadTrtLlmConfig(const std::string& config_json);

}  // namespace nereid::llm
