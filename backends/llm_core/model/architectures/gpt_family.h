// Shared by GPT-2 and GPTBigCode: keys such as n_embd in config.json, learned positions, layer
// norms with biases, a plain MLP, tensor names under transformer.h.N. [load thread]
#pragma once

#include <string>

#include "backends/llm_core/model/config_reader.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "backends/llm_core/model/weight_map.h"

namespace nereid::llm {

void ReadGptConfig(ConfigReader& config, DecoderSpec& spec);
// Maps all weights except the attention's c_attn. `transposed`: matrices are stored as [in, out]
// (Conv1D).
void MapGpt(const DecoderSpec& spec, bool transposed, WeightMap& map);
// Returns `source` with the stored shape swapped if `transposed`.
WeightSource Stored(WeightSource source, bool transposed);

}  // namespace nereid::llm
