// The two routes of a Vertex AI container: health and prediction. A prediction goes to the default
// model, or to the endpoint named in the header X-Vertex-Ai-Triton-Redirect. [called concurrently
// on every loop thread]
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "host/frontend/cloud/cloud_options.h"
#include "host/frontend/http/kserve_service.h"
#include "host/frontend/http/transport/http_service.h"
#include "host/frontend/metrics/metrics_service.h"
#include "nereid/server.h"

namespace nereid::http {

class VertexAiService final : public HttpService {
 public:
  // `server` and `state` outlive the service. The models must already be loaded.
  static Result<std::unique_ptr<VertexAiService>> Create(const Server& server, FrontendState& state,
                                                         KServeOptions kserve,
                                                         const VertexAiOptions& options);

  void Handle(HttpConnection& connection, const RequestHead& head, RequestBody&& body) override;
  bool AwaitsBody(const HttpConnection& connection, const RequestHead& head) override;

  KServeService& kserve() { return *kserve_; }

 private:
  VertexAiService(const Server& server, FrontendState& state, std::unique_ptr<KServeService> kserve,
                  const VertexAiOptions& options)
      : options_(options), metrics_(server, state), kserve_(std::move(kserve)) {}

  // A request of the inference protocol, or one to /metrics.
  struct Redirection {
    std::string path;
    Method method = Method::kOther;
  };
  // Returns none if the route does not exist or does not accept the method.
  std::optional<Redirection> RedirectionOf(const RequestHead& head, bool has_body) const;

  const VertexAiOptions options_;
  MetricsService metrics_;
  std::unique_ptr<KServeService> kserve_;
};

}  // namespace nereid::http
