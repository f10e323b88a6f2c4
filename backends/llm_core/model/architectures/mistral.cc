// Mistral: Llama's layers with a sliding window in the early releases.
#include "llm_core/model/architectures/architectures.h"
#include "llm_core/model/architectures/llama_family.h"

namespace nereid::llm {

void BuildMistral(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadLlamaConfig(config, spec);
  ReadSlidingWindows(config, config.Has("sliding_window") ? config.Size("sliding_window") : 0,
                     spec);
  MapLlamaDecoder(spec, map);
  MapLlamaMlp(spec, map);
}

}  // namespace nereid::llm
