// The KServe inference protocol over HTTP: dispatches requests to endpoints. [loop thread; every
// loop, concurrently]
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "host/frontend/frontend_state.h"
#include "host/frontend/http/calls/blocking_pool.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/router.h"
#include "host/frontend/http/transport/http_service.h"
#include "nereid/server.h"

namespace nereid::http {

class KServeService final : public HttpService {
 public:
  // `server` and `state` outlive the service.
  static Result<std::unique_ptr<KServeService>> Create(const Server& server, FrontendState& state,
                                                       const KServeOptions& options);

  void Handle(HttpConnection& connection, const RequestHead& head, RequestBody&& body) override;
  bool AwaitsBody(const HttpConnection& connection, const RequestHead& head) override;
  std::optional<size_t> NumLeadingBytes(const RequestHead& head, uint64_t body_bytes) override;
  PostedMemory AcquirePostedMemory(const RequestHead& head, uint64_t rest_bytes) override;

  const AccessControl& access() const { return context_.access; }
  // Services on the same port that start models themselves use it.
  KServeContext& context() { return context_; }
  const std::atomic<bool>& is_draining() const { return is_draining_; }
  // Runs `work` on a thread that may block, then answers with 200 or with the error of `work`.
  void RunBlocking(HttpConnection& connection, std::function<Status()> work) {
    BlockingCall::Start(context_, pool_, connection, std::move(work));
  }

  // [any thread] From now on the server reports that it is not ready.
  void BeginDrain() { is_draining_.store(true); }
  // [any thread] Number of requests that a model or the repository still processes.
  size_t num_calls() const { return context_.num_calls.load(); }

 private:
  KServeService(const Server& server, FrontendState& state, HeaderForwarding forwarding,
                ResponseAllocator allocator, const KServeOptions& options)
      : context_{server,
                 state,
                 AccessControl(state.access, options.restricted),
                 std::move(forwarding),
                 std::move(allocator),
                 options.binary_content_type,
                 options.binary_responses_in_content_type ? options.binary_content_type
                                                          : std::string(),
                 options.http_status_of_error},
        pool_(/*max_threads=*/64, /*max_pending=*/256) {}
  void HandleRoute(HttpConnection& connection, const RequestHead& head, RequestBody&& body,
                   const Route& route);

  KServeContext context_;
  BlockingPool pool_;  // has more threads than loads can hang (LoadLimits), so that others go on
  std::atomic<bool> is_draining_{false};
};

}  // namespace nereid::http
