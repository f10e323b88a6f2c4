// GPTBigCode (StarCoder, SantaCoder): GPT-2 with one key/value head for all query heads.
#include "backends/llm_core/model/architectures/architectures.h"
#include "backends/llm_core/model/architectures/gpt_family.h"

namespace nereid::llm {
namespace {

// Selects q, k or v (part 0, 1, 2) of all heads from a fused c_attn that stores (q, k, v) head by
// head.
WeightSource HeadPart(WeightSource fused, const DecoderSpec& spec, int part) {
  fused.first_row = part * spec.head_dim;
  fused.group_rows = spec.head_dim;
  fused.group_stride = 3 * spec.head_dim;
  fused.num_groups = spec.num_heads;
  return fused;
}

}  // namespace

void BuildGptBigCode(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadGptConfig(config, spec);
  const bool multi_query = config.BoolOr("multi_query", true);
  if (multi_query) spec.num_kv_heads = 1;
  MapGpt(spec, /*transposed=*/false, map);
  const int64_t hidden = spec.hidden_size;
  const int64_t kv = spec.kv_size();
  const int64_t total = hidden + 2 * kv;
  const int64_t first[] = {0, hidden, hidden + kv};
  const int64_t rows[] = {hidden, kv, kv};
  constexpr WeightKind kWeights[] = {WeightKind::kQ, WeightKind::kK, WeightKind::kV};
  constexpr WeightKind kBiases[] = {WeightKind::kQBias, WeightKind::kKBias, WeightKind::kVBias};
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    const std::string name = StrCat("transformer.h.", layer, ".attn.c_attn.");
    for (int part = 0; part < 3; ++part) {
      WeightSource weight = RowsOf(name + "weight", total, hidden, first[part], rows[part]);
      WeightSource bias = RowsOf(name + "bias", total, 0, first[part], rows[part]);
      if (!multi_query) {
        weight = HeadPart(weight, spec, part);
        bias = HeadPart(bias, spec, part);
      }
      map.sources[{layer, kWeights[part], kNoExpert}] = weight;
      map.sources[{layer, kBiases[part], kNoExpert}] = bias;
    }
  }
}

}  // namespace nereid::llm
