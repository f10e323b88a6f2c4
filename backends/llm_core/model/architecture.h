// From a checkpoint to a decoder: picks the architecture file by model_type, which fills the spec
// and the weight map. [load thread]
#pragma once

#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "backends/llm_core/model/weight_map.h"
#include "nereid/status.h"

namespace nereid::llm {

struct DecoderModel {
  DecoderSpec spec;
  QuantSpec quantization;
  ResolvedWeights weights;  // views into the checkpoint
};

// Reads config.json and generation_config.json and resolves every weight. Errors: UNSUPPORTED names
// the model_type, the quantisation or the rope type that is not known; INVALID_ARG names keys and
// tensors. `takes_quantised`: the executor knows ResolvedWeight::quant; else a quantised checkpoint
// is UNSUPPORTED.
Result<DecoderModel> ReadDecoder(const Checkpoint& checkpoint, bool takes_quantised = false);

// The same without weights: DecoderModel::weights stay empty, whatever the checkpoint holds.
Result<DecoderModel> ReadDecoderSpec(const Checkpoint& checkpoint, bool takes_quantised = false);

}  // namespace nereid::llm
