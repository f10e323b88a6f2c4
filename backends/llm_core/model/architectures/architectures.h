// One builder function per architecture: it reads config.json into a DecoderSpec and names the
// checkpoint's tensors in a WeightMap. Errors go to config.Fail(). To add an architecture, add a
// file here, a line in architecture.cc and a directory with a golden output. [load thread]
#pragma once

#include "backends/llm_core/model/config_reader.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "backends/llm_core/model/weight_map.h"

namespace nereid::llm {

using ArchitectureBuilder = void (*)(ConfigReader& config, DecoderSpec& spec, WeightMap& map);

void BuildGemma2(ConfigReader& config, DecoderSpec& spec, WeightMap& map);
void BuildGemma3(ConfigReader& config, DecoderSpec& spec, WeightMap& map);
void BuildGemma3Vision(ConfigReader& config, DecoderSpec& spec, WeightMap& map);
void BuildGpt2(ConfigReader& config, DecoderSpec& spec, WeightMap& map);
void BuildGptBigCode(ConfigReader& config, DecoderSpec& spec, WeightMap& map);
void BuildGptNeoX(ConfigReader& config, DecoderSpec& spec, WeightMap& map);
void BuildLlama(ConfigReader& config, DecoderSpec& spec, WeightMap& map);
void BuildMistral(ConfigReader& config, DecoderSpec& spec, WeightMap& map);
void BuildMixtral(ConfigReader& config, DecoderSpec& spec, WeightMap& map);
void BuildPhi3(ConfigReader& config, DecoderSpec& spec, WeightMap& map);
void BuildQwen2(ConfigReader& config, DecoderSpec& spec, WeightMap& map);
void BuildQwen3(ConfigReader& config, DecoderSpec& spec, WeightMap& map);
void BuildQwen3Moe(ConfigReader& config, DecoderSpec& spec, WeightMap& map);
void BuildStarCoder2(ConfigReader& config, DecoderSpec& spec, WeightMap& map);

}  // namespace nereid::llm
