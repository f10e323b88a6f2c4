// Draft tokens, their logits and the threshold.
#include "backends/llm_core/adapter/draft_inputs.h"

#include <optional>

#include "backends/llm_core/checkpoint/safetensors.h"
#include "backends/llm_core/model/integer_weight_rows.h"

namespace nereid::llm {
namespace {

Status ReadLogits(BatchInputs& inputs, int64_t row, std::vector<float>& logits) {
  TensorView* const view = inputs.Find("draft_logits");
  if (view == nullptr) return {};
  if (view->datatype() == DataType::kFp32) {
    NEREID_ASSIGN_OR_RETURN(const std::span<const float> values,
                            inputs.Row<float>("draft_logits", row));
    logits.assign(values.begin(), values.end());
    return {};
  }
  if (view->datatype() != DataType::kFp16) {
    return InvalidArgError("input 'draft_logits': expected FP32 or FP16, got ",
                           Name(view->datatype()));
  }
  NEREID_ASSIGN_OR_RETURN(const std::span<const Fp16> halves,
                          inputs.Row<Fp16>("draft_logits", row));
  CheckpointTensor tensor;
  tensor.type = CheckpointDataType::kF16;
  tensor.bytes = {reinterpret_cast<const uint8_t*>(halves.data()), halves.size_bytes()};
  logits.resize(halves.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = ElementAsFloat(tensor, static_cast<int64_t>(i));
  }
  return {};
}

Status ReadSpeculates(const Request& request, bool& speculates) {
  NEREID_ASSIGN_OR_RETURN(const std::optional<ParameterView> parameter,
                          request.FindParameter("speculative_decoding"));
  if (!parameter) return {};
  if (parameter->type != TRITONSERVER_PARAMETER_BOOL) {
    return InvalidArgError("request parameter 'speculative_decoding': expected true or false");
  }
  speculates = parameter->AsBool();
  return {};
}

}  // namespace

Status ReadDraftInputs(const Request& request, BatchInputs& inputs, int64_t row,
                       GenerationRequest& generation) {
  NEREID_RETURN_IF_ERROR(ReadSpeculates(request, generation.speculates));
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> ids,
                          inputs.Row<int32_t>("draft_input_ids", row));
  generation.draft_ids.assign(ids.begin(), ids.end());
  NEREID_RETURN_IF_ERROR(ReadLogits(inputs, row, generation.draft_logits));
  return inputs.Scalar<float>("draft_acceptance_threshold", row, generation.draft_threshold);
}
}  // namespace nereid::llm
