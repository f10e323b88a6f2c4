// POST /v1/completions: texts that continue prompts. [one thread]
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/frontend/openai/calls/answers.h"
#include "host/frontend/openai/calls/generation_request.h"
#include "host/frontend/openai/fields/parsed_body.h"
#include "host/frontend/openai/tensors/llm_signature.h"
#include "nereid/status.h"

namespace nereid::openai {

// A prompt: a text, token ids, or embeddings.
struct Prompt {
  std::string text = {};
  std::vector<int64_t> ids = {};
  bool is_text = true;
  std::vector<float> embeds = {};  // [tokens, embed_size]
  int64_t embed_size = 0;          // 0: no embeddings
};

// Reads the fields `prompt_embeds` and `prompt`: a text, a list of texts, a list of ids, or a list
// of lists of ids.
Result<std::vector<Prompt>> ReadPrompts(ParsedBody& body);

// Writes the input that carries a prompt.
Status WritePrompt(ParsedBody& body, const LlmSignature& model, const Prompt& prompt,
                   http::InputTensors& inputs);

// Reads the body, which ParsedBody::Read has checked, for `model`.
Status ReadCompletionRequest(ParsedBody& body, const LlmSignature& model,
                             GenerationRequest& request);

std::unique_ptr<AnswerFormat> NewCompletionFormat(const GenerationRequest& request);

}  // namespace nereid::openai
