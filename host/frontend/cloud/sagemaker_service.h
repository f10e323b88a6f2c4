// The routes of a SageMaker container: /ping, /invocations, and /models with what lies below it, by
// which the platform loads, asks and unloads models of its own. [loop thread; every loop,
// concurrently]
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "host/frontend/cloud/cloud_options.h"
#include "host/frontend/http/kserve_service.h"
#include "host/frontend/http/transport/service.h"
#include "nereid/server.h"

namespace nereid::http {

class SageMakerService final : public Service {
 public:
  // `server` and `state` outlive the service.
  static Result<std::unique_ptr<SageMakerService>> Create(const Server& server,
                                                          FrontendState& state,
                                                          KServeOptions kserve,
                                                          const SageMakerOptions& options);

  void Handle(Connection& connection, const RequestHead& head, Body body) override;

  KServeService& kserve() { return *kserve_; }

 private:
  SageMakerService(const Server& server, std::unique_ptr<KServeService> kserve,
                   const SageMakerOptions& options)
      : server_(server), options_(options), kserve_(std::move(kserve)) {}

  void HandleModels(Connection& connection, const RequestHead& head, Body body);
  void HandleModel(Connection& connection, const RequestHead& head, Body body,
                   const std::string& name, std::string_view action);
  // The request at another path of the inference protocol.
  void Redirect(Connection& connection, const RequestHead& head, Body body,
                const std::string& path);

  void StartLoad(Connection& connection, const RequestHead& head, const Body& body);
  Status Load(const std::string& name, const std::string& url);
  Status Unload(const std::string& name);

  std::string UrlOf(const std::string& name);  // empty: not loaded by this service
  std::string ModelsJson();

  struct Loaded {
    std::string url;         // as the platform gave it
    std::string repository;  // registered for it
  };

  const Server& server_;
  const SageMakerOptions options_;
  std::mutex mutex_;  // guards the map
  std::map<std::string, Loaded> models_;
  // Last: its threads use what stands above.
  std::unique_ptr<KServeService> kserve_;
};

}  // namespace nereid::http
