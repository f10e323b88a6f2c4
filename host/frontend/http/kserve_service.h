// The inference protocol on HTTP: finds a request's endpoint and hands it on. [loop thread; every
// loop, concurrently]
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "host/frontend/http/calls/blocking_pool.h"
#include "host/frontend/http/calls/pool_call.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/kserve_options.h"
#include "host/frontend/http/router.h"
#include "host/frontend/http/transport/service.h"
#include "nereid/server.h"

namespace nereid::http {

class KServeService final : public Service {
 public:
  // `server` and `state` outlive the service.
  static Result<std::unique_ptr<KServeService>> Create(const Server& server, FrontendState& state,
                                                       const KServeOptions& options);

  void Handle(Connection& connection, const RequestHead& head, Body body) override;
  std::optional<size_t> FirstPart(const RequestHead& head, uint64_t body_bytes) override;
  BodyPlace OfferPlace(const RequestHead& head, uint64_t rest_bytes) override;

  // False: the group of endpoints is restricted, and the request was answered so.
  bool Admit(Connection& connection, const RequestHead& head, ApiGroup group) const;
  // Answers 200, or the error of `work`, which runs on a thread that may block.
  void RunBlocking(Connection& connection, std::function<Status()> work) {
    PoolCall::Start(context_, pool_, connection, std::move(work));
  }

  // [any thread] From now on the server says that it is not ready.
  void BeginDrain() { is_draining_.store(true); }
  // [any thread] Requests that a model, or the repository, still holds.
  size_t num_calls() const { return context_.num_calls.load(); }

 private:
  KServeService(const Server& server, FrontendState& state, HeaderForwarding forwarding,
                ResponseAllocator allocator, const KServeOptions& options)
      : context_{server,
                 state,
                 std::move(forwarding),
                 std::move(allocator),
                 options.binary_content_type,
                 options.answers_in_content_type ? options.binary_content_type : std::string(),
                 options.status_of_error},
        restricted_(options.restricted),
        pool_(/*max_threads=*/4) {}
  void HandleRoute(Connection& connection, const RequestHead& head, Body body, const Route& route);

  KServeContext context_;
  const RestrictedApis restricted_;
  BlockingPool pool_;
  std::atomic<bool> is_draining_{false};
};

}  // namespace nereid::http
