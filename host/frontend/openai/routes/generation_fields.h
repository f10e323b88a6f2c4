// The fields that chats and completions have in common, as tensors of the model. [one thread]
#pragma once

#include <string>
#include <string_view>

#include "host/frontend/openai/calls/generation_request.h"
#include "host/frontend/openai/fields/parsed_body.h"
#include "host/frontend/openai/tensors/input_writer.h"
#include "host/frontend/openai/tensors/llm_signature.h"
#include "nereid/status.h"

namespace nereid::openai {

// Returns the field `model`, or INVALID_ARG.
Result<std::string> ReadModelName(ParsedBody& body);

// The value of a field for a model. Functions that fail have called ParsedBody::Refuse.
class GenerationFields {
 public:
  // The references outlive the object.
  GenerationFields(ParsedBody& body, const LlmSignature& model) : body_(body), model_(model) {}

  // Reads what does not go to the model: streams, numbers of answers, ids.
  Status ReadRequest(GenerationRequest& request);
  // Writes the tensors of one prompt, except the prompt itself. `default_max_tokens` is used if the
  // client says nothing; 0: what the context leaves.
  Status WriteInputs(const GenerationRequest& request, int64_t default_max_tokens,
                     http::InputTensors& inputs);

  // Refuses a field that needs a tensor of this name, unless the model has it.
  Status RequireInput(const FieldValue& value, std::string_view tensor);
  Status RequireOutput(const FieldValue& value, std::string_view tensor);

  // Reads `prompt_logprobs`.
  Status ReadPromptLogProbs(GenerationRequest& request);
  // Asks for the log probabilities of the answer's tokens because of the field `log_probs`, and for
  // the most likely tokens because of the field `top`, which may be null.
  Status RequestLogProbs(const FieldValue& log_probs, const FieldValue* top,
                         GenerationRequest& request);
  // Asks for the tokens of the prompt with their log probabilities and the `num_top` most likely
  // ones at each place. `value`: the field that needs them.
  Status RequestPromptLogProbs(const FieldValue& value, int64_t num_top,
                               GenerationRequest& request);
  // Writes what this takes, for one prompt.
  Status WritePromptLogProbs(int64_t num_top, http::InputTensors& inputs);
  // Writes `thinking_token_budget`.
  Status WriteThinkingBudget(InputWriter& writer);
  // Writes `truncate_prompt_tokens`, for one prompt. `default_max_tokens`: of an answer.
  Status WriteTruncation(int64_t default_max_tokens, http::InputTensors& inputs);

 private:
  Status ReadStreamOptions(GenerationRequest& request);
  Status CheckChoices();
  Status WriteTensor(const FieldValue& value, InputWriter& writer);
  Status WriteSampling(InputWriter& writer);
  Status WriteAdapter(InputWriter& writer);
  Status WriteLogitBias(InputWriter& writer);
  Status WriteGuide(InputWriter& writer);
  // See GenerationRequest::length_tokens.
  int64_t LengthTokens(const GenerationRequest& request) const;
  const FieldValue* MaxTokens() const;  // null: the client gives none
  Status ReadNumAnswers(GenerationRequest& request);
  Status WriteMaxTokens(int64_t default_max_tokens, InputWriter& writer);

  ParsedBody& body_;
  const LlmSignature& model_;
};

}  // namespace nereid::openai
