// Finds the language models of a server. [any thread]
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/frontend/openai/tensors/llm_signature.h"
#include "nereid/server.h"
#include "nereid/status.h"

namespace nereid::openai {

// Returns the signature of a language model that is ready. NOT_FOUND if the server has no such
// model, or one without text; UNAVAILABLE if it is not ready. The result may be a second old.
Result<std::shared_ptr<const LlmSignature>> FindLlm(const Server& server, const std::string& name);

// The same for any model.
Result<std::shared_ptr<const LlmSignature>> FindSignature(const Server& server,
                                                          const std::string& name);

// The names of all language models that are ready, in order.
Result<std::vector<std::string>> ListLlms(const Server& server);

}  // namespace nereid::openai
