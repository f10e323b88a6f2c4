// config.json of a TensorRT-LLM checkpoint: the Hugging Face config.json of the same decoder, and
// how the tensors lie in the ranks' files. [load thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::llm {

// What the tensors of a family become. Where Hugging Face fuses q, k and v, or gate and up, they
// are told apart all the same.
enum class TrtLlmNames : uint8_t {
  kLlama,
  kPhi3,        // Llama's, up and gate in one here
  kStarCoder2,  // Llama's, with a plain MLP
  kGpt,         // transformer.h.N, with a plain MLP
};

// What config.json says that the tensors depend on.
struct TrtLlmLayout {
  TrtLlmNames names = TrtLlmNames::kLlama;
  std::string_view experts;  // "block_sparse_moe." or "mlp."; empty: none
  int32_t tp = 1, pp = 1;
  int32_t moe_tp = 1, moe_ep = 1;
  int32_t num_layers = 0, vocab_size = 0;
  int32_t num_experts = 0;
  int64_t q_rows = 0, kv_rows = 0;  // of one rank
  int32_t kv_copies = 1;            // ranks that hold the same key/value heads
  bool splits_embedding = false;
  bool embedding_by_columns = false;
};

struct TrtLlmConfig {
  TrtLlmLayout layout;
  // As Hugging Face would write it, but for three things that only these checkpoints have:
  // quant_method "trtllm_awq", "norm_weight_offset" (Gemma's norms are stored with their one), and
  // "split_projections" (those that Hugging Face fuses are not; GPT-2's matrices are [out, in], and
  // StarCoder is one with "num_key_value_heads").
  std::string config_json;
};

// Known: Llama, Mistral, Mixtral, Qwen2, Qwen3, Qwen3-MoE, Phi-3, Gemma 2 and 3, GPT (GPT-2,
// StarCoder, StarCoder2), in fp32, fp16 or bf16; without experts also with W4A16_AWQ. Others are
// UNSUPPORTED by name.
Result<TrtLlmConfig> ReadTrtLlmConfig(const std::string& config_json);

}  // namespace nereid::llm
