// Reads the draft tokens, their logits and the threshold, and the sizes of lookahead decoding.
#include "backends/llm_core/adapter/draft_inputs.h"

#include <utility>

#include "backends/llm_core/adapter/logits_format.h"

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
  logits.reserve(halves.size());
  for (const Fp16 half : halves) logits.push_back(ToFloat(half));
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

Result<std::optional<LookaheadSizes>> ReadLookahead(BatchInputs& inputs, int64_t row,
                                                    const std::optional<LookaheadSizes>& of_model) {
  LookaheadSizes sizes = of_model.value_or(LookaheadSizes());
  bool is_given = false;
  for (const NamedLookaheadSize& input : kLookaheadSizes) {
    if (inputs.Find(input.name) == nullptr) continue;
    NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>(input.name, row, sizes.*input.size));
    if (!of_model) {
      return InvalidArgError("input '", input.name, "' is ", sizes.*input.size,
                             ": the model has no lookahead decoding; its parameter "
                             "'speculative_decoding' or 'decoding_mode' has to be lookahead");
    }
    is_given = true;
  }
  if (!is_given) return std::optional<LookaheadSizes>();
  NEREID_RETURN_IF_ERROR(CheckLookaheadWithin(sizes, *of_model));
  NEREID_RETURN_IF_ERROR(CheckLookaheadSizes(sizes, "input"));
  return std::optional(sizes);
}

}  // namespace nereid::llm
