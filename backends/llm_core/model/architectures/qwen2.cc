// Qwen2 and Qwen2.5: Llama with biases on q, k and v alone.
#include "llm_core/model/architectures/architectures.h"
#include "llm_core/model/architectures/llama_family.h"

namespace nereid::llm {

void BuildQwen2(ConfigReader& config, DecoderSpec& spec, WeightMap& map) {
  ReadLlamaConfig(config, spec);
  spec.qkv_bias = true;
  if (config.BoolOr("use_sliding_window", false) && config.Has("sliding_window")) {
    const int32_t window = config.Size("sliding_window");
    if (config.Has("layer_types")) {
      ReadSlidingWindows(config, window, spec);
    } else {  // without the list, the layers from max_window_layers on slide
      for (int32_t layer = config.SizeOr("max_window_layers", 28); layer < spec.num_layers();
           ++layer) {
        spec.layers[layer].sliding_window = window;
      }
    }
  }
  MapLlamaDecoder(spec, map);
  MapLlamaMlp(spec, map);
}

}  // namespace nereid::llm
