#include "host/frontend/openai/routes/route_support.h"

#include <algorithm>
#include <utility>

#include "host/frontend/openai/tensors/llm_models.h"

namespace nereid::openai {

std::vector<ListedLlm> VisibleModels(const ApiContext& context, const HttpConnection& connection,
                                     const RequestHead& head) {
  Result<std::vector<ListedLlm>> models = ListLlms(context.kserve.server, context.adapters);
  if (!models.ok()) return {};
  if (context.demand != nullptr) {
    for (std::string& name : context.demand->names()) {
      const auto is_same = [&](const ListedLlm& model) { return model.name == name; };
      if (std::any_of(models->begin(), models->end(), is_same)) continue;
      const auto is_behind = [&](const ListedLlm& model) {
        return model.parent.empty() && model.name > name;
      };
      const auto place = std::find_if(models->begin(), models->end(), is_behind);
      models->insert(place, {std::move(name), ""});
    }
  }
  const ApiCallerOf caller(connection, head);
  std::erase_if(*models, [&](const ListedLlm& model) {
    const std::string& name = model.parent.empty() ? model.name : model.parent;
    return context.kserve.access.Check(caller, ApiOperation::kModelMetadata, name).has_value();
  });
  return std::move(models).value();
}

std::string NamesText(const std::vector<ListedLlm>& models) {
  std::string list;
  for (const ListedLlm& model : models) {
    list += StrCat(list.empty() ? "" : ", ", "'", model.name, "'");
  }
  return list.empty() ? "none" : list;
}

std::shared_ptr<const LlmSignature> FindModel(const ApiContext& context, HttpConnection& connection,
                                              const RequestHead& head, const std::string& name) {
  Result<std::shared_ptr<const LlmSignature>> model =
      FindLlm(context.kserve.server, context.adapters, name);
  // Whoever may use a model may use its adapters.
  const std::string& called = model.ok() ? (*model)->model : name;
  if (!CheckApiAccess(context, connection, head, ApiOperation::kInfer,
                      called.empty() ? " " : called)) {
    return nullptr;
  }
  if (model.ok()) return std::move(model).value();
  ApiError error = ToApiError(model.status());
  error.param = "model";
  if (model.status().code() == StatusCode::kNotFound) {
    error.message =
        StrCat("the model '", name.substr(0, 256),
               "' does not exist; models: ", NamesText(VisibleModels(context, connection, head)));
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
