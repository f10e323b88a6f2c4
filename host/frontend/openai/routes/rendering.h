// Turns conversations and prompts into token ids, and ids into text, with the steps of a language
// model that do so, without its engine. [loop thread]
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "host/frontend/http/bodies/infer_body.h"
#include "host/frontend/openai/routes/api_routes.h"
#include "host/frontend/openai/tensors/llm_signature.h"
#include "nereid/status.h"

namespace nereid::openai {

// Gets the result and answers the connection.
using IdsHandler = std::function<void(HttpConnection&, Result<std::vector<int64_t>>)>;
using TextHandler = std::function<void(HttpConnection&, Result<std::string>)>;

// `inputs` are inputs of the ensemble `model` that form its prompt: a text or a conversation. On an
// error the connection must still be answered. UNSUPPORTED if the model is no ensemble with such a
// step.
Status StartRendering(const ApiContext& context, HttpConnection& connection,
                      const LlmSignature& model, http::InputTensors inputs, IdsHandler handler);

// The text of token ids, with or without special tokens.
Status StartDecoding(const ApiContext& context, HttpConnection& connection,
                     const LlmSignature& model, const std::vector<int64_t>& ids,
                     bool keeps_special_tokens, TextHandler handler);

}  // namespace nereid::openai
