// Completes and checks the inputs and outputs of a configuration.
#include "backends/llm_core/adapter/model_tensors.h"

#include <algorithm>

#include "backends/llm_tables/engine_tensors.h"

namespace nereid::llm {
namespace {

Status CheckTensor(const char* kind, const TensorSpec& declared, DataType datatype, bool any_float,
                   const std::vector<int64_t>& dims) {
  if (!FitsType(datatype, any_float, declared.datatype)) {
    return InvalidArgError(kind, " '", declared.name, "': expected ", ConfigName(datatype),
                           ", got ", ConfigName(declared.datatype));
  }
  if (declared.dims == dims) return {};
  return InvalidArgError(kind, " '", declared.name, "': expected dims ", ToString(dims), ", got ",
                         ToString(declared.dims));
}

}  // namespace

Status CompleteTensors(ConfigDraft& draft) {
  const bool lacks_inputs = draft.json()["input"].elements().empty();
  const bool lacks_outputs = draft.json()["output"].elements().empty();
  for (const EngineInput& input : EngineInputs()) {
    if (!lacks_inputs) break;
    NEREID_RETURN_IF_ERROR(
        draft.AddInput({std::string(input.name), input.datatype, input.dims, input.is_optional}));
  }
  for (const EngineOutput& output : EngineOutputs()) {
    if (!lacks_outputs) break;
    NEREID_RETURN_IF_ERROR(draft.AddOutput({output.name, output.datatype, output.dims, false}));
  }
  return {};
}

Status CheckTensors(const ModelConfig& config) {
  for (const TensorSpec& declared : config.inputs()) {
    const EngineInput* const known = FindEngineInput(declared.name);
    if (known == nullptr) {
      return InvalidArgError("input '", declared.name, "' is unknown to this backend",
                             SuggestEngineInput(declared.name));
    }
    NEREID_RETURN_IF_ERROR(
        CheckTensor("input", declared, known->datatype, known->any_float, known->dims));
  }
  for (const TensorSpec& declared : config.outputs()) {
    const EngineOutput* const known = FindEngineOutput(declared.name);
    if (known == nullptr) {
      return InvalidArgError("output '", declared.name, "' is unknown to this backend",
                             SuggestEngineOutput(declared.name));
    }
    if (known->any_float) continue;  // ConfiguredOutputs::CheckLogits checks the type
    NEREID_RETURN_IF_ERROR(CheckTensor("output", declared, known->datatype, false, known->dims));
  }
  for (const EngineInput& input : EngineInputs()) {
    const auto is_input = [&](const TensorSpec& declared) { return declared.name == input.name; };
    const std::vector<TensorSpec>& declared = config.inputs();
    if (input.is_optional || std::any_of(declared.begin(), declared.end(), is_input)) continue;
    return InvalidArgError("input '", input.name, "', which this backend needs, is not declared");
  }
  return {};
}

}  // namespace nereid::llm
