// Fuzzes config.json and generation_config.json of a checkpoint with a few tensors. Arbitrary text
// must not crash. An accepted configuration yields a decoder with consistent sizes.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "backends/llm_core/model/architecture.h"

namespace {

using namespace nereid::llm;

// A Llama model of one layer. Every other architecture misses tensors and is rejected.
TensorMap MakeTensors() {
  static const std::vector<uint8_t> zeros(4096);
  const auto tensor = [](std::vector<int64_t> shape) {
    size_t bytes = 4;
    for (const int64_t dim : shape) bytes *= static_cast<size_t>(dim);
    return CheckpointTensor{CheckpointDataType::kF32, std::move(shape), {zeros.data(), bytes}};
  };
  const std::string layer = "model.layers.0.";
  return {{"model.embed_tokens.weight", tensor({8, 4})},
          {"model.norm.weight", tensor({4})},
          {layer + "input_layernorm.weight", tensor({4})},
          {layer + "post_attention_layernorm.weight", tensor({4})},
          {layer + "self_attn.q_proj.weight", tensor({4, 4})},
          {layer + "self_attn.k_proj.weight", tensor({2, 4})},
          {layer + "self_attn.v_proj.weight", tensor({2, 4})},
          {layer + "self_attn.o_proj.weight", tensor({4, 4})},
          {layer + "mlp.gate_proj.weight", tensor({6, 4})},
          {layer + "mlp.up_proj.weight", tensor({6, 4})},
          {layer + "mlp.down_proj.weight", tensor({4, 6})}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The bytes after a zero byte are generation_config.json.
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t separator = text.find('\0');
  const std::string generation = separator == std::string::npos ? "" : text.substr(separator + 1);
  const Checkpoint checkpoint =
      Checkpoint::FromParts("input", text.substr(0, separator), generation, MakeTensors());
  const auto model = ReadDecoder(checkpoint);
  if (!model.ok()) return 0;
  const DecoderSpec& spec = model->spec;
  if (spec.num_heads % spec.num_kv_heads != 0 || spec.layers.empty()) std::abort();
  for (const LayerSpec& layer : spec.layers) {
    if (spec.position == PositionKind::kRope &&
        spec.ropes.size() <= static_cast<size_t>(layer.rope))
      std::abort();
  }
  for (const RopeSpec& rope : spec.ropes) {
    if (rope.dim > spec.head_dim || rope.inv_freq.size() * 2 != static_cast<size_t>(rope.dim)) {
      std::abort();
    }
  }
  for (const auto& [key, weight] : model->weights) {
    if (weight.tensor.shape != weight.source.tensor_shape) std::abort();
  }
  return 0;
}
