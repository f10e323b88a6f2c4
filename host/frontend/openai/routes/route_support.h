// What several routes need of the server. [loop thread]
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "host/frontend/openai/routes/api_routes.h"
#include "host/frontend/openai/tensors/llm_models.h"
#include "host/frontend/openai/tensors/llm_signature.h"

namespace nereid::openai {

// Finds the language model that a request names and checks that the client may use it. Null after
// it has answered with an error; an unknown model gets 404 with the list of those that the client
// may see.
std::shared_ptr<const LlmSignature> FindModel(const ApiContext& context, HttpConnection& connection,
                                              const RequestHead& head, const std::string& name);

// The language models that are ready, with their LoRA adapters, or that are loaded on demand, and
// whose metadata the client may read.
std::vector<ListedLlm> VisibleModels(const ApiContext& context, const HttpConnection& connection,
                                     const RequestHead& head);

// The names for an error message: "'a', 'b'", or "none".
std::string NamesText(const std::vector<ListedLlm>& models);

// A request as AccessControl sees it. Anthropic's clients send the key in the header x-api-key.
class ApiCallerOf final : public ApiCaller {
 public:
  // The arguments outlive the object.
  ApiCallerOf(const HttpConnection& connection, const RequestHead& head);
  std::string_view FindHeader(std::string_view name) const override;
  bool IsPeerLocal() const override { return connection_.IsPeerLocal(); }

 private:
  const HttpConnection& connection_;
  const RequestHead& head_;
  std::string bearer_;  // "Bearer <key>" if the key came in x-api-key
};

// The header X-Request-Id; empty if it is absent or has an unusual form.
std::string RequestIdOf(const RequestHead& head);

}  // namespace nereid::openai
