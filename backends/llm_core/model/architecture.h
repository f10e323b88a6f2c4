// Reads a decoder from a checkpoint. The architecture file for its model_type fills the spec and
// the weight map. [load thread]
#pragma once

#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "backends/llm_core/model/weight_map.h"
#include "nereid/status.h"

namespace nereid::llm {

struct DecoderModel {
  DecoderSpec spec;
  QuantSpec quantization;
  WeightMap map;            // the names of the weights in the family's checkpoints
  ResolvedWeights weights;  // views into the checkpoint
};

// Reads config.json and generation_config.json and resolves every weight. UNSUPPORTED names an
// unknown model_type, quantization or rope type; INVALID_ARG names keys and tensors.
// `supports_quantized`: the executor supports ResolvedWeight::quant; otherwise a quantized
// checkpoint is UNSUPPORTED.
Result<DecoderModel> ReadDecoder(const Checkpoint& checkpoint, bool supports_quantized = false);

// The same without weights: DecoderModel::weights stays empty.
Result<DecoderModel> ReadDecoderSpec(const Checkpoint& checkpoint, bool supports_quantized = false);

}  // namespace nereid::llm
