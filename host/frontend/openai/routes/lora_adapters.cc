// POST /v1/load_lora_adapter and /v1/unload_lora_adapter, with the bodies of vLLM. Whoever may load
// and unload a model may load and unload its adapters.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/frontend/http/calls/model_call.h"
#include "host/frontend/openai/calls/answers.h"
#include "host/frontend/openai/calls/step_call.h"
#include "host/frontend/openai/fields/parsed_body.h"
#include "host/frontend/openai/routes/api_routes.h"
#include "host/frontend/openai/routes/route_support.h"
#include "host/frontend/openai/tensors/input_writer.h"
#include "host/frontend/openai/tensors/llm_models.h"
#include "nereid/ext/adapter_command.h"

namespace nereid::openai {
namespace {

// What the client asks for.
struct AdapterChange {
  std::string model;  // as clients know it
  std::string adapter;
  std::string path;  // empty: unload
  bool replaces = false;
  bool is_configured = false;  // the model's configuration names the adapter
};

// A command in flight. Answers the client when the engine has run it.
class AdapterCall final : public http::ModelCall {
 public:
  AdapterCall(ApiContext& context, HttpConnection& connection, RequestBody body,
              http::InputTensors inputs, AdapterChange change)
      : ModelCall(context.kserve, connection, std::move(body), std::move(inputs)),
        adapters_(context.adapters),
        change_(std::move(change)) {}

 private:
  void OnModelResponse(InferResponse response) override {
    if (response_.empty()) response_ = std::move(response);
  }
  void OnModelEnd() override {
    const Result<std::vector<OutputView>> outputs =
        response_.empty()
            ? Result<std::vector<OutputView>>(InternalError("the model has sent no response"))
            : OutputsOf(response_);
    if (!outputs.ok()) return ReplyApiError(*connection(), ToApiError(outputs.status()));
    const bool is_load = !change_.path.empty();
    if (is_load) {
      adapters_.Add(change_.model, change_.adapter, change_.is_configured);
    } else {
      adapters_.Remove(change_.model, change_.adapter, change_.is_configured);
    }
    connection()->Reply({.content_type = "text/plain; charset=utf-8"},
                        StrCat("Success: LoRA adapter '", change_.adapter,
                               is_load ? "' added" : "' removed", " successfully."));
  }

  LoadedAdapters& adapters_;
  const AdapterChange change_;
  InferResponse response_;
};

Result<std::string> RequiredText(ParsedBody& body, const char* name) {
  const FieldValue* const value = body.Find(name);
  if (value == nullptr || value->text.empty()) {
    return body.Refuse(name, "missing", name, ": this field is required");
  }
  if (value->text.find('\0') != std::string_view::npos) {
    return body.Refuse(name, "invalid_value", name, ": has a zero byte");
  }
  return std::string(value->text);
}

Result<AdapterChange> ReadChange(ParsedBody& body, RouteSet route) {
  NEREID_RETURN_IF_ERROR(body.Read(route));
  AdapterChange change;
  NEREID_ASSIGN_OR_RETURN(change.adapter, RequiredText(body, "lora_name"));
  if (route == kLoadAdapter) {
    NEREID_ASSIGN_OR_RETURN(change.path, RequiredText(body, "lora_path"));
    change.replaces = body.BoolOr("load_inplace", false);
  }
  if (body.Find("model") != nullptr) {
    NEREID_ASSIGN_OR_RETURN(change.model, RequiredText(body, "model"));
  }
  return change;
}

// The language models that take adapters by name, as far as the client may see them.
std::vector<std::string> AdaptableModels(const ApiContext& context,
                                         const std::vector<ListedLlm>& visible) {
  std::vector<std::string> names;
  for (const ListedLlm& listed : visible) {
    if (!listed.parent.empty()) continue;
    const auto model = FindSignature(context.kserve.server, listed.name);
    if (model.ok() && !(*model)->engine.empty()) names.push_back(listed.name);
  }
  return names;
}

// The model that the body names, or the only one that there is.
Status ChooseModel(const ApiContext& context, const std::vector<ListedLlm>& visible,
                   ParsedBody& body, AdapterChange& change) {
  const std::vector<std::string> names = AdaptableModels(context, visible);
  if (change.model.empty() && names.size() == 1) change.model = names[0];
  if (std::find(names.begin(), names.end(), change.model) != names.end()) return Status::Ok();
  std::string list;
  for (const std::string& name : names) list += StrCat(list.empty() ? "'" : ", '", name, "'");
  return body.Refuse("model", "invalid_value", "model: got '", change.model.substr(0, 256),
                     "', expected a language model that takes LoRA adapters: ",
                     list.empty() ? "there is none" : list);
}

Status CheckName(const std::vector<ListedLlm>& visible, ParsedBody& body,
                 const AdapterChange& change) {
  for (const ListedLlm& listed : visible) {
    const bool is_other = listed.parent.empty() || listed.parent != change.model;
    if (listed.name != change.adapter || !is_other) continue;
    return body.Refuse("lora_name", "invalid_value", "The lora adapter name '", change.adapter,
                       "' conflicts with a served model.");
  }
  return Status::Ok();
}

// A command in the form of the model's required inputs, whose values mean nothing.
Result<InferRequest> MakeCommand(const ApiContext& context, const AdapterChange& change,
                                 const std::string& engine, http::InputTensors& inputs) {
  NEREID_ASSIGN_OR_RETURN(const auto signature, FindSignature(context.kserve.server, engine));
  InputWriter writer(*signature, inputs);
  for (const char* const name : {"input_ids", "input_lengths", "request_output_len"}) {
    if (writer.Has(name)) NEREID_RETURN_IF_ERROR(writer.AddInteger(name, 1));
  }
  NEREID_ASSIGN_OR_RETURN(InferRequest request,
                          http::BuildRequest(context.kserve.server, {engine}, {}, inputs, {}));
  NEREID_RETURN_IF_ERROR(request.SetParameter(NEREID_ADAPTER_COMMAND, true));
  NEREID_RETURN_IF_ERROR(request.SetParameter(NEREID_ADAPTER_NAME, change.adapter.c_str()));
  if (change.path.empty()) return request;
  NEREID_RETURN_IF_ERROR(request.SetParameter(NEREID_ADAPTER_PATH, change.path.c_str()));
  NEREID_RETURN_IF_ERROR(request.SetParameter(NEREID_ADAPTER_REPLACE, change.replaces));
  return request;
}

Status Launch(ApiContext& context, HttpConnection& connection, AdapterChange change) {
  NEREID_ASSIGN_OR_RETURN(const auto model, FindSignature(context.kserve.server, change.model));
  const std::vector<std::string>& configured = model->adapters;
  change.is_configured =
      std::find(configured.begin(), configured.end(), change.adapter) != configured.end();
  http::InputTensors inputs;
  NEREID_ASSIGN_OR_RETURN(InferRequest request,
                          MakeCommand(context, change, model->engine, inputs));
  RequestBody body{.memory = {}, .reservation = ByteReservation(connection.budget())};
  NEREID_RETURN_IF_ERROR(http::ReserveInputs(inputs, body.reservation));
  return http::ModelCall::Launch(
      std::make_unique<AdapterCall>(context, connection, std::move(body), std::move(inputs),
                                    std::move(change)),
      std::move(request), /*trace=*/nullptr);
}

void HandleChange(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                  const RequestBody& body, RouteSet route) {
  ParsedBody parsed(body.bytes(), connection.limits().max_json_depth);
  Result<AdapterChange> change = ReadChange(parsed, route);
  if (!change.ok()) return ReplyApiError(connection, parsed.ErrorOf(change.status()));
  const std::vector<ListedLlm> visible = VisibleModels(context, connection, head);
  Status status = ChooseModel(context, visible, parsed, *change);
  const ApiOperation operation =
      route == kLoadAdapter ? ApiOperation::kLoadModel : ApiOperation::kUnloadModel;
  // If no model is known, this checks the right with a name that no model has.
  const std::string& called = status.ok() ? change->model : " ";
  if (!CheckApiAccess(context, connection, head, operation, called)) return;
  if (status.ok()) status = CheckName(visible, parsed, *change);
  if (status.ok()) status = Launch(context, connection, std::move(*change));
  if (!status.ok()) ReplyApiError(connection, parsed.ErrorOf(status));
}

}  // namespace

void HandleLoadAdapter(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                       RequestBody body) {
  HandleChange(context, connection, head, body, kLoadAdapter);
}

void HandleUnloadAdapter(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                         RequestBody body) {
  HandleChange(context, connection, head, body, kUnloadAdapter);
}

}  // namespace nereid::openai
