#include "host/frontend/openai/routes/route_support.h"

#include <algorithm>
#include <utility>

#include "host/frontend/openai/tensors/llm_models.h"

namespace nereid::openai {

std::vector<std::string> VisibleModels(const ApiContext& context, const HttpConnection& connection,
                                       const RequestHead& head) {
  Result<std::vector<std::string>> names = ListLlms(context.kserve.server);
  if (!names.ok()) return {};
  const ApiCallerOf caller(connection, head);
  std::erase_if(*names, [&](const std::string& name) {
    return context.kserve.access.Check(caller, ApiOperation::kModelMetadata, name).has_value();
  });
  return std::move(names).value();
}

std::shared_ptr<const LlmSignature> FindModel(const ApiContext& context, HttpConnection& connection,
                                              const RequestHead& head, const std::string& name) {
  if (!CheckApiAccess(context, connection, head, ApiOperation::kInfer, name.empty() ? " " : name)) {
    return nullptr;
  }
  Result<std::shared_ptr<const LlmSignature>> model = FindLlm(context.kserve.server, name);
  if (model.ok()) return std::move(model).value();
  ApiError error = ToApiError(model.status());
  error.param = "model";
  if (model.status().code() == StatusCode::kNotFound) {
    std::string list;
    for (const std::string& each : VisibleModels(context, connection, head)) {
      list += StrCat(list.empty() ? "" : ", ", "'", each, "'");
    }
    error.message = StrCat("the model '", name.substr(0, 256),
                           "' does not exist; models: ", list.empty() ? "none" : list);
    error.code = "model_not_found";
  }
  ReplyApiError(connection, error, ErrorFormOf(head.path));
  return nullptr;
}

ApiCallerOf::ApiCallerOf(const HttpConnection& connection, const RequestHead& head)
    : connection_(connection), head_(head) {
  const std::string_view key = head.Header("x-api-key");
  if (!key.empty() && head.Header("authorization").data() == nullptr) {
    bearer_ = StrCat("Bearer ", key);
  }
}

std::string_view ApiCallerOf::FindHeader(std::string_view name) const {
  if (name == "authorization" && !bearer_.empty()) return bearer_;
  return head_.Header(name);
}

std::string RequestIdOf(const RequestHead& head) {
  constexpr size_t kMaxBytes = 128;
  const std::string_view id = head.Header("X-Request-Id");
  const bool is_usual = id.size() <= kMaxBytes && std::all_of(id.begin(), id.end(), [](char c) {
                          return c > ' ' && c < 0x7f;
                        });
  return is_usual ? std::string(id) : std::string();
}

}  // namespace nereid::openai
