// GPT-2: matrices stored [in, out], q, k and v in one of them.
#include "llm_core/model/architectures/architectures.h"
#include "llm_core/model/architectures/gpt_family.h"

namespace nereid::llm {

void BuildGpt2(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadGptConfig(config, spec);
  MapGpt(spec, /*transposed=*/true, map);
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
