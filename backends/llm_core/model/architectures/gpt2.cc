// GPT-2: matrices are stored as [in, out]; q, k and v are fused.
#include "backends/llm_core/model/architectures/architectures.h"
#include "backends/llm_core/model/architectures/gpt_family.h"

namespace nereid::llm {
namespace {

// Names of TensorRT-LLM checkpoints, in which q, k and v are separate.
void MapSplit(const DecoderSpec& spec, WeightMap& map) {
  struct Projection {
    WeightKind weight, bias;
    const char* name;
    int64_t rows;
  };
  const Projection projections[] = {
      {WeightKind::kQ, WeightKind::kQBias, "q_proj.", spec.q_size()},
      {WeightKind::kK, WeightKind::kKBias, "k_proj.", spec.kv_size()},
      {WeightKind::kV, WeightKind::kVBias, "v_proj.", spec.kv_size()}};
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    for (const Projection& projection : projections) {
      const std::string name = StrCat("transformer.h.", layer, ".attn.", projection.name);
      map.sources[{layer, projection.weight, kNoExpert}] =
          Matrix(name + "weight", projection.rows, spec.hidden_size);
      map.sources[{layer, projection.bias, kNoExpert}] = Vector(name + "bias", projection.rows);
    }
  }
}

}  // namespace

void BuildGpt2(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadGptConfig(config, spec);
  const bool is_split = config.BoolOr("split_projections", false);
  if (is_split) spec.num_kv_heads = config.SizeOr("num_key_value_heads", spec.num_heads);
  MapGpt(spec, /*transposed=*/!is_split, map);
  if (is_split) return MapSplit(spec, map);
  const int64_t hidden = spec.hidden_size;
  constexpr WeightKind kWeights[] = {WeightKind::kQ, WeightKind::kK, WeightKind::kV};
  constexpr WeightKind kBiases[] = {WeightKind::kQBias, WeightKind::kKBias, WeightKind::kVBias};
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    const std::string name = StrCat("transformer.h.", layer, ".attn.c_attn.");
    for (int part = 0; part < 3; ++part) {
      map.sources[{layer, kWeights[part], kNoExpert}] =
          Stored(RowsOf(name + "weight", 3 * hidden, hidden, part * hidden, hidden), true);
      map.sources[{layer, kBiases[part], kNoExpert}] =
          RowsOf(name + "bias", 3 * hidden, 0, part * hidden, hidden);
    }
  }
}

}  // namespace nereid::llm
