// Phi-3 and Phi-4-mini: Llama with fused q, k, v and fused gate, up.
#include "backends/llm_core/model/architectures/architectures.h"
#include "backends/llm_core/model/architectures/llama_family.h"

namespace nereid::llm {

void BuildPhi3(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadLlamaConfig(
      config, spec,
      {.rope = {.allows_partial_rotary = true, .max_positions = 4096, .original_positions = 4096},
       .norm_epsilon = 1e-5});
  SetSlidingWindow(config.Has("sliding_window") ? config.Size("sliding_window") : 0, spec);
  MapLlamaDecoder(spec, map);
  MapLlamaMlp(spec, map);
  if (config.BoolOr("split_projections", false)) return;  // TensorRT-LLM checkpoints
  const int64_t hidden = spec.hidden_size;
  const int64_t inner = spec.intermediate_size;
  const int64_t qkv_rows = spec.q_size() + 2 * spec.kv_size();
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    const std::string qkv = LlamaLayerPrefix(layer) + "self_attn.qkv_proj.weight";
    const std::string gate_up = LlamaLayerPrefix(layer) + "mlp.gate_up_proj.weight";
    const auto set = [&](WeightKind kind, WeightSource source) {
      map.sources[{layer, kind, kNoExpert}] = std::move(source);
    };
    set(WeightKind::kQ, RowsOf(qkv, qkv_rows, hidden, 0, spec.q_size()));
    set(WeightKind::kK, RowsOf(qkv, qkv_rows, hidden, spec.q_size(), spec.kv_size()));
    set(WeightKind::kV,
        RowsOf(qkv, qkv_rows, hidden, spec.q_size() + spec.kv_size(), spec.kv_size()));
    set(WeightKind::kGate, RowsOf(gate_up, 2 * inner, hidden, 0, inner));
    set(WeightKind::kUp, RowsOf(gate_up, 2 * inner, hidden, inner, inner));
  }
}

}  // namespace nereid::llm
