// Reads the outputs of the configuration and recognizes configurations of older releases.
#include "backends/llm_core/adapter/configured_outputs.h"

#include <algorithm>

#include "backends/llm_core/adapter/logits_format.h"

namespace nereid::llm {
namespace {

bool HasInput(const ModelConfig& config, std::string_view name) {
  const auto has_name = [&](const TensorSpec& input) { return input.name == name; };
  return std::any_of(config.inputs().begin(), config.inputs().end(), has_name);
}

}  // namespace

ConfiguredOutputs::ConfiguredOutputs(const ModelConfig& config)
    : is_batching(config.max_batch_size() > 0),
      is_decoupled(config.is_decoupled()),
      // NVIDIA's templates have the first input since release 0.6 and the second since 0.14.
      fills_unrequested(HasInput(config, "prompt_embedding_table") &&
                        !HasInput(config, "num_return_sequences")) {
  for (const TensorSpec& output : config.outputs()) {
    names.push_back(output.name);
    if (output.name == "context_logits") context_logits = output.datatype;
    if (output.name == "generation_logits") generation_logits = output.datatype;
  }
}

Status ConfiguredOutputs::CheckLogits() const {
  const std::pair<const char*, DataType> all[] = {{"context_logits", context_logits},
                                                  {"generation_logits", generation_logits}};
  for (const auto& [name, datatype] : all) {
    if (IsLogitsType(datatype)) continue;
    return UnsupportedError("output '", name, "': logits of type ", ConfigName(datatype),
                            " are not supported, expected TYPE_FP32, TYPE_FP16 or TYPE_BF16");
  }
  return {};
}

bool ConfiguredOutputs::Has(std::string_view name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace nereid::llm
