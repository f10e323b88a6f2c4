// Evaluates the rules of inputs that are not used as such.
#include "backends/llm_core/adapter/input_rules.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace nereid::llm {
namespace {

// The greatest element of an integer tensor, 0 if it is empty; of FP32, 1 if any is not zero.
Result<uint64_t> Greatest(TensorView& view) {
  uint64_t greatest = 0;
  const auto of = [&](const auto& values) {
    for (const auto value : values) {
      // Negative numbers become great ones, which asks for the feature as well.
      greatest = std::max(greatest, static_cast<uint64_t>(value));
    }
  };
  if (view.datatype() == DataType::kFp32) {
    NEREID_ASSIGN_OR_RETURN(const std::span<const float> values, view.As<float>());
    return std::any_of(values.begin(), values.end(), [](float v) { return v != 0.0f; }) ? 1u : 0u;
  }
  if (view.datatype() == DataType::kUint64) {
    NEREID_ASSIGN_OR_RETURN(const std::span<const uint64_t> values, view.As<uint64_t>());
    of(values);
  } else if (view.datatype() == DataType::kUint32) {
    NEREID_ASSIGN_OR_RETURN(const std::span<const uint32_t> values, view.As<uint32_t>());
    of(values);
  } else {
    NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> values, view.As<int32_t>());
    of(values);
  }
  return greatest;
}

Result<bool> IsEmpty(TensorView& view) {
  if (view.datatype() != DataType::kBytes) return view.size_bytes() == 0;
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> texts, view.Strings());
  return std::all_of(texts.begin(), texts.end(),
                     [](std::string_view text) { return text.empty(); });
}

// Whether the tensor's value asks for the feature that the rule refuses. `num_rows`: the number of
// batch items in the request.
Result<bool> AsksForFeature(TensorView& view, InputRule rule, int64_t num_rows) {
  switch (rule) {
    case InputRule::kUsed:
    case InputRule::kNoted:
      return false;
    case InputRule::kRefuseNonEmpty: {
      NEREID_ASSIGN_OR_RETURN(const bool is_empty, IsEmpty(view));
      return !is_empty;
    }
    case InputRule::kRefuseTrue: {
      NEREID_ASSIGN_OR_RETURN(const std::span<const Bool> values, view.As<Bool>());
      return std::any_of(values.begin(), values.end(), [](Bool value) { return bool{value}; });
    }
    case InputRule::kRefuseSeveral:
      return view.size_bytes() > static_cast<size_t>(num_rows) * ByteSize(view.datatype());
    case InputRule::kRefuseNonZero:
    case InputRule::kRefuseAboveOne:
      break;
  }
  NEREID_ASSIGN_OR_RETURN(const uint64_t greatest, Greatest(view));
  return greatest > (rule == InputRule::kRefuseAboveOne ? 1u : 0u);
}

}  // namespace

Result<std::vector<const EngineInput*>> ApplyInputRules(BatchInputs& inputs) {
  static const std::vector<const EngineInput*> rules = [] {
    std::vector<const EngineInput*> all;
    for (const EngineInput& input : EngineInputs()) {
      if (input.rule != InputRule::kUsed) all.push_back(&input);
    }
    return all;
  }();
  std::vector<const EngineInput*> noted;
  for (const EngineInput* const input : rules) {
    TensorView* view = inputs.Find(input->name);
    if (view == nullptr) continue;
    NEREID_ASSIGN_OR_RETURN(const bool refuse,
                            AsksForFeature(*view, input->rule, inputs.num_rows()));
    if (refuse) return RefusalOf(*input);
    if (input->rule == InputRule::kNoted) noted.push_back(input);
  }
  return noted;
}

Status RefuseRequestType(const Request& request) {
  NEREID_ASSIGN_OR_RETURN(const std::optional<ParameterView> type,
                          request.FindParameter("request_type"));
  if (!type) return {};
  if (type->type != TRITONSERVER_PARAMETER_STRING) {
    return InvalidArgError("parameter 'request_type': expected a text");
  }
  if (type->AsString() == "context_and_generation") return {};
  return UnsupportedError("parameter 'request_type' is '", type->AsString(),
                          "': context and generation on different servers are not supported, ",
                          "expected context_and_generation");
}

}  // namespace nereid::llm
