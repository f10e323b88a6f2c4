// The HTTP port's service: the OpenAI routes, and everything else from KServeService. [loop thread;
// every loop, concurrently]
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/frontend/frontend_state.h"
#include "host/frontend/http/kserve_service.h"
#include "host/frontend/http/transport/http_service.h"
#include "host/frontend/openai/access_log.h"
#include "host/frontend/openai/origin_policy.h"
#include "host/frontend/openai/routes/api_routes.h"
#include "nereid/server.h"

namespace nereid::openai {

class OpenAiService final : public http::HttpService {
 public:
  // `is_local`: the port is open only to this machine. `checks_kserve`: pages of other servers may
  // not use KServe's routes either.
  // `demand` loads models that requests name; null: none is loaded on demand. `log`: null if there
  // is none. Both outlive the object.
  OpenAiService(std::unique_ptr<http::KServeService> kserve, const OpenAiOptions& options,
                bool is_local, bool checks_kserve, ModelDemand* demand, AccessLog* log);

  void Handle(http::HttpConnection& connection, const http::RequestHead& head,
              http::RequestBody&& body) override;
  bool AwaitsBody(const http::HttpConnection& connection, const http::RequestHead& head) override;
  Refusal Refuse(const http::RequestHead& head, int status, std::string_view reason) override;
  std::optional<size_t> NumLeadingBytes(const http::RequestHead& head,
                                        uint64_t body_bytes) override;
  http::PostedMemory AcquirePostedMemory(const http::RequestHead& head,
                                         uint64_t rest_bytes) override;

  http::KServeService& kserve() { return *kserve_; }

 private:
  bool AnswerConsole(http::HttpConnection& connection, const http::RequestHead& head);
  void HandleApi(http::HttpConnection& connection, const http::RequestHead& head,
                 const ApiRoute& route, http::RequestBody body);
  void HandleKServe(http::HttpConnection& connection, const http::RequestHead& head,
                    http::RequestBody&& body);
  const ApiRoute* FindRoute(const http::RequestHead& head) const;
  bool AnswerPage(http::HttpConnection& connection, const http::RequestHead& head, bool is_api);

  const std::unique_ptr<http::KServeService> kserve_;
  const OriginPolicy origins_;
  const bool checks_kserve_;
  const bool has_console_;
  AccessLog* const log_;
  ResponseStore responses_;
  LoadedAdapters adapters_;
  RunningRequests running_;
  ApiContext context_;
};

}  // namespace nereid::openai
