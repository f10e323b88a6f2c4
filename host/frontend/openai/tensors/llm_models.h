// Finds the language models of a server. [any thread]
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/frontend/openai/tensors/llm_signature.h"
#include "host/frontend/openai/tensors/loaded_adapters.h"
#include "nereid/server.h"
#include "nereid/status.h"

namespace nereid::openai {

// Returns the signature of a language model that is ready, or of a LoRA adapter that one of them
// offers under this name. NOT_FOUND if the server has no such
// model, or one without text; UNAVAILABLE if it is not ready. The result may be a second old.
Result<std::shared_ptr<const LlmSignature>> FindLlm(const Server& server,
                                                    const LoadedAdapters& loaded,
                                                    const std::string& name);

// The same for any model.
Result<std::shared_ptr<const LlmSignature>> FindSignature(const Server& server,
                                                          const std::string& name);

struct ListedLlm {
  std::string name;
  std::string parent;         // the model whose LoRA adapter it is; empty: a model of its own
  int64_t max_model_len = 0;  // as in LlmSignature; 0: not known
};

// All language models that are ready, in order, each followed by its adapters. An adapter with the
// name of a model is left out.
Result<std::vector<ListedLlm>> ListLlms(const Server& server, const LoadedAdapters& loaded);

}  // namespace nereid::openai
