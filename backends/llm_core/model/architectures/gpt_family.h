// What GPT-2 and its descendants share: n_embd and friends in config.json, learned positions, layer
// norms with biases, a plain MLP, names under transformer.h.N. [load thread]
#pragma once

#include <string>

#include "backends/llm_core/model/config_reader.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "backends/llm_core/model/weight_map.h"

namespace nereid::llm {

void ReadGptConfig(ConfigReader& config, DecoderSpec& spec);
// Everything but the attention's c_attn. `transposed`: matrices are stored [in, out] (Conv1D).
void MapGpt(const DecoderSpec& spec, bool transposed, WeightMap& map);
// The same source, stored [columns, rows] when `transposed`.
WeightSource Stored(WeightSource source, bool transposed);

}  // namespace nereid::llm
