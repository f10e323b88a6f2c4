// Maps SageMaker's paths to endpoints of the inference protocol, and loads and unloads models by
// folder.
#include "host/frontend/cloud/sagemaker_service.h"

#include <chrono>
#include <thread>
#include <utility>

#include "host/frontend/cloud/sagemaker_request.h"
#include "host/frontend/http/json/json_reader.h"
#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/http/request_access.h"
#include "host/frontend/http/transport/http_connection.h"

namespace nereid::http {
namespace {

constexpr char kSageMakerBinaryType[] =
    "application/vnd.sagemaker-triton.binary+json;json-header-size=";
// The platform waits 360 s for an unload.
constexpr std::chrono::seconds kUnloadLimit(350);

void AppendModel(std::string& json, const std::string& name, const std::string& url) {
  json += "{\"modelName\":";
  AppendLossyJsonString(json, name);
  json += ",\"modelUrl\":";
  AppendLossyJsonString(json, url);
  json += '}';
}

// True if a version of the model is not yet unloaded.
Result<bool> IsUnloading(const Server& server, const std::string& model) {
  NEREID_ASSIGN_OR_RETURN(const Message index, server.ModelIndex(/*ready_only=*/false));
  NEREID_ASSIGN_OR_RETURN(const std::string_view json, index.Json());
  bool is_unloading = false;
  JsonReader reader(json, /*max_depth=*/8);
  NEREID_RETURN_IF_ERROR(reader.ReadArray([&]() -> Status {
    std::string name;
    std::string state;
    NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) -> Status {
      if (key != "name" && key != "state") return reader.SkipValue();
      std::string& target = key == "name" ? name : state;
      NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
      target = text;
      return Status::Ok();
    }));
    is_unloading = is_unloading || (name == model && (state == "READY" || state == "UNLOADING"));
    return Status::Ok();
  }));
  return is_unloading;
}

}  // namespace

Result<std::unique_ptr<SageMakerService>> SageMakerService::Create(
    const Server& server, FrontendState& state, KServeOptions kserve,
    const SageMakerOptions& options) {
  kserve.binary_content_type = kSageMakerBinaryType;
  kserve.binary_responses_in_content_type = true;
  kserve.http_status_of_error = &SageMakerStatusOf;
  NEREID_ASSIGN_OR_RETURN(auto service, KServeService::Create(server, state, kserve));
  return std::unique_ptr<SageMakerService>(
      new SageMakerService(server, std::move(service), options));
}

std::string SageMakerService::RedirectionOf(const RequestHead& head) const {
  if (head.path == "/ping") return "/v2/health/ready";
  if (head.path != "/invocations" || options_.default_model.empty()) return "";
  return StrCat("/v2/models/", options_.default_model, "/", options_.inference);
}

bool SageMakerService::AwaitsBody(const HttpConnection& connection, const RequestHead& head) {
  std::string path = RedirectionOf(head);
  if (path.empty()) {
    if (head.path != "/models" && !head.path.starts_with("/models/")) return false;
    const auto [name, action] = ReadModelsPath(head.path);
    if (name.empty()) {  // the model to load is named in the body
      return head.method == Method::kPost &&
             !kserve_->access().Authenticate(RequestCaller(connection, head),
                                             ApiOperation::kLoadModel);
    }
    if (action != "invoke" || UrlOf(std::string(name)).empty()) return false;
    path = StrCat("/v2/models/", name, "/infer");
  }
  RequestHead redirected = head;
  redirected.path = path;
  return kserve_->AwaitsBody(connection, redirected);
}

void SageMakerService::Handle(HttpConnection& connection, const RequestHead& head,
                              RequestBody&& body) {
  if (const std::string path = RedirectionOf(head); !path.empty()) {
    Redirect(connection, head, std::move(body), path);
  } else if (head.path == "/invocations") {
    ReplyError(connection,
               InvalidArgError("/invocations: SAGEMAKER_TRITON_DEFAULT_MODEL_NAME is not set"));
  } else if (head.path == "/models" || head.path.starts_with("/models/")) {
    HandleModels(connection, head, std::move(body));
  } else {
    connection.Reply({.status = 404}, ErrorBody("Not Found"));
  }
}

void SageMakerService::Redirect(HttpConnection& connection, const RequestHead& head,
                                RequestBody body, const std::string& path) {
  RequestHead redirected = head;
  redirected.path = path;
  kserve_->Handle(connection, redirected, std::move(body));
}

void SageMakerService::HandleModels(HttpConnection& connection, const RequestHead& head,
                                    RequestBody body) {
  const auto [name, action] = ReadModelsPath(head.path);
  if (!name.empty()) {
    HandleModel(connection, head, std::move(body), std::string(name), action);
  } else if (head.method == Method::kGet) {
    if (MayDo(connection, head, ApiOperation::kRepositoryIndex)) {
      connection.Reply({}, ModelsJson());
    }
  } else if (head.method == Method::kPost) {
    StartLoad(connection, head, body);
  } else {
    connection.Reply({.status = 405}, ErrorBody("Method Not Allowed"));
  }
}

void SageMakerService::HandleModel(HttpConnection& connection, const RequestHead& head,
                                   RequestBody body, const std::string& name,
                                   std::string_view action) {
  const bool is_invoke = action == "invoke";
  const bool is_get = head.method == Method::kGet;
  const ApiOperation operation = is_invoke ? ApiOperation::kInfer
                                 : is_get  ? ApiOperation::kRepositoryIndex
                                           : ApiOperation::kUnloadModel;
  if (!MayDo(connection, head, operation, name)) return;
  const std::string url = UrlOf(name);
  if (url.empty() || (!is_invoke && !action.empty())) {
    connection.Reply({.status = 404}, ErrorBody(StrCat("model '", name, "' is not loaded")));
  } else if (is_invoke) {
    Redirect(connection, head, std::move(body), StrCat("/v2/models/", name, "/infer"));
  } else if (is_get) {
    std::string json;
    AppendModel(json, name, url);
    connection.Reply({}, json);
  } else if (head.method == Method::kDelete) {
    kserve_->RunBlocking(connection, [this, name] { return Unload(name); });
  } else {
    connection.Reply({.status = 405}, ErrorBody("Method Not Allowed"));
  }
}

bool SageMakerService::MayDo(HttpConnection& connection, const RequestHead& head,
                             ApiOperation operation, std::string_view model) const {
  return CheckAccess(kserve_->access(), connection, head, operation, model);
}

void SageMakerService::StartLoad(HttpConnection& connection, const RequestHead& head,
                                 const RequestBody& body) {
  Result<SageMakerLoad> load = ReadSageMakerLoad(body.bytes(), connection.limits().max_json_depth);
  const std::string model = load.ok() ? load->name : std::string();
  if (!MayDo(connection, head, ApiOperation::kLoadModel, model)) return;
  if (!load.ok()) return ReplyError(connection, load.status());
  kserve_->RunBlocking(connection,
                       [this, load = *std::move(load)] { return Load(load.name, load.url); });
}

Status SageMakerService::Load(const std::string& name, const std::string& url) {
  if (!UrlOf(name).empty()) return AlreadyExistsError("model '", name, "' is already loaded");
  NEREID_ASSIGN_OR_RETURN(const ModelFolder folder, FindModelFolder(url));
  const Parameter names[] = {Parameter::String(folder.name, name)};
  NEREID_RETURN_IF_ERROR(server_.RegisterModelRepository(folder.repository.c_str(), names));
  const Status status = server_.LoadModel(name.c_str());
  if (!status.ok()) {
    (void)server_.UnregisterModelRepository(folder.repository.c_str());
    return status;
  }
  const std::lock_guard lock(mutex_);
  models_.insert_or_assign(name, Loaded{url, folder.repository});
  return Status::Ok();
}

Status SageMakerService::Unload(const std::string& name) {
  Loaded loaded;
  {
    const std::lock_guard lock(mutex_);
    const auto found = models_.find(name);
    if (found == models_.end()) return NotFoundError("model '", name, "' is not loaded");
    loaded = found->second;
    models_.erase(found);  // from now on requests for it are answered with 404
  }
  NEREID_RETURN_IF_ERROR(server_.UnloadModel(name.c_str(), /*unload_dependents=*/true));
  // The platform expects the model's memory to be free once it has the response.
  const auto deadline = std::chrono::steady_clock::now() + kUnloadLimit;
  while (true) {
    NEREID_ASSIGN_OR_RETURN(const bool is_unloading, IsUnloading(server_, name));
    if (!is_unloading || std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return server_.UnregisterModelRepository(loaded.repository.c_str());
}

std::string SageMakerService::UrlOf(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(name);
  return found == models_.end() ? "" : found->second.url;
}

std::string SageMakerService::ModelsJson() {
  std::string json = "{\"models\":[";
  const size_t empty = json.size();
  const std::lock_guard lock(mutex_);
  for (const auto& [name, loaded] : models_) {
    if (json.size() != empty) json += ',';
    AppendModel(json, name, loaded.url);
  }
  return json + "]}";
}

}  // namespace nereid::http
