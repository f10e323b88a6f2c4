#include "backends/gpu_llm/gpu_executor_options.h"

#include <algorithm>

namespace nereid::gpu {
namespace {

// A dynamic rope is only supported up to its trained length, because the rope table has one row for
// each position, independent of the prompt's length.
Status CheckPositions(const llm::DecoderSpec& spec, int32_t max_positions) {
  for (const llm::RopeSpec& rope : spec.ropes) {
    if (rope.trained_positions > 0 && max_positions > rope.trained_positions) {
      return UnsupportedError("max_seq_len is ", max_positions, ", but gpu_llm serves a dynamic ",
                              "rope up to the ", rope.trained_positions,
                              " tokens that it was trained on (cpu_reference goes on)");
    }
  }
  return {};
}

}  // namespace

Status CheckOptions(const GpuExecutorOptions& options, const llm::DecoderSpec& spec) {
  NEREID_RETURN_IF_ERROR(CheckPositions(spec, options.max_positions));
  if (options.resident_weights_fraction >= 1.0) return {};
  if (std::none_of(spec.layers.begin(), spec.layers.end(),
                   [](const llm::LayerSpec& layer) { return layer.is_moe; })) {
    return {};
  }
  return UnsupportedError("parameter 'gpu_weights_percent' is ", options.resident_weights_fraction,
                          " for a mixture of experts: gpu_llm keeps weights of dense models in "
                          "host memory");
}

}  // namespace nereid::gpu
