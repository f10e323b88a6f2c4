#include "host/frontend/openai/routes/rendering.h"

#include <cstring>
#include <utility>

#include "host/frontend/openai/calls/step_call.h"
#include "host/frontend/openai/tensors/answer_piece.h"
#include "host/frontend/openai/tensors/input_writer.h"
#include "host/frontend/openai/tensors/llm_models.h"

namespace nereid::openai {
namespace {

// The tensors of the tokenizer's models, in every repository of this kind.
constexpr char kIds[] = "INPUT_ID";
constexpr char kTokens[] = "TOKENS_BATCH";
constexpr char kLength[] = "SEQUENCE_LENGTH";
constexpr char kSkipSpecialTokens[] = "SKIP_SPECIAL_TOKENS";

Result<std::vector<int64_t>> IdsOf(const Result<std::vector<OutputView>>& outputs) {
  if (!outputs.ok()) return outputs.status();
  if (outputs->size() != 1 || outputs->front().datatype != TRITONSERVER_TYPE_INT32) {
    return InternalError("output '", kIds, "' of the model: expected one tensor of INT32");
  }
  const OutputView& output = outputs->front();
  std::vector<int32_t> ids(output.size_bytes / sizeof(int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), output.base, ids.size() * sizeof(int32_t));
  return std::vector<int64_t>(ids.begin(), ids.end());
}

Result<std::string> TextOf(const Result<std::vector<OutputView>>& outputs) {
  if (!outputs.ok()) return outputs.status();
  if (outputs->size() != 1) return InternalError("the model has sent no text");
  const OutputView& output = outputs->front();
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> texts,
                          ReadTexts({static_cast<const char*>(output.base), output.size_bytes}));
  return texts.empty() ? std::string() : std::string(texts[0]);
}

}  // namespace

Status StartRendering(const ApiContext& context, HttpConnection& connection,
                      const LlmSignature& model, http::InputTensors inputs, IdsHandler handler) {
  const LlmStep& step = model.preprocessing;
  if (step.model.empty()) {
    return UnsupportedError("model '", model.name, "' is no ensemble with a step that reads text");
  }
  if (step.inputs.contains("max_tokens")) {  // required by some, and of no effect here
    InputWriter writer(model, inputs);
    if (writer.Has("max_tokens")) NEREID_RETURN_IF_ERROR(writer.AddInteger("max_tokens", 1));
  }
  for (http::InputTensor& input : inputs) {
    const auto renamed = step.inputs.find(input.name);
    if (renamed == step.inputs.end()) {
      return UnsupportedError("step '", step.model, "' of model '", model.name, "' does not read '",
                              input.name, "'");
    }
    input.name = renamed->second;
  }
  return StepCall::Start(
      context.kserve, connection, step.model, std::move(inputs), kIds,
      [handler = std::move(handler)](HttpConnection& client,
                                     const Result<std::vector<OutputView>>& outputs) {
        handler(client, IdsOf(outputs));
      });
}

Status StartDecoding(const ApiContext& context, HttpConnection& connection,
                     const LlmSignature& model, const std::vector<int64_t>& ids,
                     bool keeps_special_tokens, TextHandler handler) {
  const LlmStep& step = model.postprocessing;
  if (step.model.empty()) {
    return UnsupportedError("model '", model.name, "' is no ensemble with a step that writes text");
  }
  NEREID_ASSIGN_OR_RETURN(const auto signature, FindSignature(context.kserve.server, step.model));
  http::InputTensors inputs;
  InputWriter writer(*signature, inputs);
  if (!writer.Has(kTokens) || !writer.Has(kLength)) {
    return UnsupportedError("step '", step.model, "' of model '", model.name, "' does not read '",
                            kTokens, "' and '", kLength, "'");
  }
  NEREID_RETURN_IF_ERROR(writer.AddIntegers(kTokens, ids));
  NEREID_RETURN_IF_ERROR(writer.AddInteger(kLength, static_cast<int64_t>(ids.size())));
  if (keeps_special_tokens) {
    if (!writer.Has(kSkipSpecialTokens)) {
      return UnsupportedError("step '", step.model, "' of model '", model.name, "' has no input '",
                              kSkipSpecialTokens, "', so that the text would lack special tokens");
    }
    NEREID_RETURN_IF_ERROR(writer.AddBool(kSkipSpecialTokens, false));
  }
  return StepCall::Start(
      context.kserve, connection, step.model, std::move(inputs), step.outputs.at("text_output"),
      [handler = std::move(handler)](HttpConnection& client,
                                     const Result<std::vector<OutputView>>& outputs) {
        handler(client, TextOf(outputs));
      });
}

}  // namespace nereid::openai
