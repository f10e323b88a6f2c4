// A guide comes from two tensors of an item, or from one parameter of the request.
#include "backends/llm_core/adapter/guide_inputs.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace nereid::llm {
namespace {

// The budget has no effect without thinking_end_ids: the preprocessing then knows no text that ends
// the reasoning.
Status ReadReasoning(BatchInputs& inputs, int64_t row, GenerationRequest& generation) {
  if (inputs.Find("thinking_token_budget") == nullptr) return {};
  ReasoningLimit limit;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("thinking_token_budget", row, limit.max_tokens));
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> begin_ids,
                          inputs.Row<int32_t>("thinking_begin_ids", row));
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> end_ids,
                          inputs.Row<int32_t>("thinking_end_ids", row));
  limit.begin_ids.assign(begin_ids.begin(), begin_ids.end());
  limit.end_ids.assign(end_ids.begin(), end_ids.end());
  if (!end_ids.empty()) generation.reasoning = std::move(limit);
  return {};
}

// `what` begins the message: it names the tensor or parameter that has the guide.
Status RefuseBeams(const std::string& what, const GenerationRequest& generation) {
  if (!generation.uses_beams()) return {};
  return UnsupportedError(what, "'beam_width' is ", generation.beams.width,
                          ": beam search follows no grammar, expected 1");
}

}  // namespace

Status ReadGuide(BatchInputs& inputs, int64_t row, RequestItem& out) {
  NEREID_RETURN_IF_ERROR(ReadReasoning(inputs, row, *out.generation));
  constexpr const char* kType = "guided_decoding_guide_type";
  constexpr const char* kGuide = "guided_decoding_guide";
  NEREID_ASSIGN_OR_RETURN(const auto type, inputs.Text(kType, row));
  NEREID_ASSIGN_OR_RETURN(const auto text, inputs.Text(kGuide, row));
  if (type.value_or("").empty()) {
    if (text.value_or("").empty()) return {};
    return InvalidArgError("input '", kGuide, "' needs '", kType, "'");
  }
  Result<grammar::GuideType> parsed = grammar::ParseGuideType(*type);
  if (!parsed.ok()) return std::move(parsed).status().WithContext(StrCat("input '", kType, "'"));
  const std::string what = StrCat("input '", kType, "' is '", *type, "'");
  if (text.value_or("").empty() && *parsed != grammar::GuideType::kJson) {
    return InvalidArgError(what, ": it needs '", kGuide, "'");
  }
  NEREID_RETURN_IF_ERROR(RefuseBeams(what + " and ", *out.generation));
  out.guide = grammar::Guide{*parsed, std::string(text.value_or(""))};
  return {};
}

Status ReadGuideParameters(const Request& request, ClientRequest& result) {
  const char* found = nullptr;
  for (const char* name : grammar::GuideParameters()) {
    NEREID_ASSIGN_OR_RETURN(const std::optional<ParameterView> parameter,
                            request.FindParameter(name));
    if (!parameter) continue;
    const std::string what = StrCat("request parameter '", name, "'");
    if (parameter->type != TRITONSERVER_PARAMETER_STRING) {
      return InvalidArgError(what, ": expected a text");
    }
    if (found != nullptr) return InvalidArgError(what, ": not beside '", found, "'");
    found = name;
    Result<std::optional<grammar::Guide>> guide =
        grammar::ReadGuideParameter(name, parameter->AsString());
    if (!guide.ok()) return std::move(guide).status().WithContext(what);
    if (!*guide) continue;
    for (RequestItem& item : result.items) {
      if (item.guide) {
        return InvalidArgError(what, ": not beside the input 'guided_decoding_guide_type'");
      }
      NEREID_RETURN_IF_ERROR(RefuseBeams(what + ": ", *item.generation));
      item.guide = **guide;
    }
  }
  return {};
}

}  // namespace nereid::llm
