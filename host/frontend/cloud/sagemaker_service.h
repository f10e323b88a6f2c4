// The routes of a SageMaker container: /ping, /invocations, and /models/..., with which the
// platform loads, invokes, describes and unloads models. [called concurrently on every loop thread]
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "host/frontend/cloud/cloud_options.h"
#include "host/frontend/http/kserve_service.h"
#include "host/frontend/http/transport/http_service.h"
#include "nereid/server.h"

namespace nereid::http {

class SageMakerService final : public HttpService {
 public:
  // `server` and `state` outlive the service.
  static Result<std::unique_ptr<SageMakerService>> Create(const Server& server,
                                                          FrontendState& state,
                                                          KServeOptions kserve,
                                                          const SageMakerOptions& options);

  void Handle(HttpConnection& connection, const RequestHead& head, RequestBody&& body) override;
  bool AwaitsBody(const HttpConnection& connection, const RequestHead& head) override;

  KServeService& kserve() { return *kserve_; }

 private:
  SageMakerService(const Server& server, std::unique_ptr<KServeService> kserve,
                   const SageMakerOptions& options)
      : server_(server), options_(options), kserve_(std::move(kserve)) {}

  void HandleModels(HttpConnection& connection, const RequestHead& head, RequestBody body);
  void HandleModel(HttpConnection& connection, const RequestHead& head, RequestBody body,
                   const std::string& name, std::string_view action);
  // Returns the path of the inference protocol at which a request to /ping or /invocations is
  // handled; empty if it is none, or if there is no default model.
  std::string RedirectionOf(const RequestHead& head) const;
  // Handles the request as if it were sent to `path` of the inference protocol.
  void Redirect(HttpConnection& connection, const RequestHead& head, RequestBody body,
                const std::string& path);

  // Returns false after it has answered a request that is not permitted.
  bool MayDo(HttpConnection& connection, const RequestHead& head, ApiOperation operation,
             std::string_view model = {}) const;
  void StartLoad(HttpConnection& connection, const RequestHead& head, const RequestBody& body);
  Status Load(const std::string& name, const std::string& url);
  Status Unload(const std::string& name);

  std::string UrlOf(const std::string& name);  // empty: not loaded by this service
  std::string ModelsJson();

  struct Loaded {
    std::string url;         // as the platform sent it
    std::string repository;  // repository registered for this model
  };

  const Server& server_;
  const SageMakerOptions options_;
  std::mutex mutex_;  // guards models_
  std::map<std::string, Loaded> models_;
  // Declared last, because its threads use the members above.
  std::unique_ptr<KServeService> kserve_;
};

}  // namespace nereid::http
