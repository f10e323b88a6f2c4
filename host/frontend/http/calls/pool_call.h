// A request whose work may block: it runs on the pool's threads, the answer leaves on the loop.
#pragma once

#include <functional>

#include "host/frontend/http/calls/blocking_pool.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/transport/connection.h"
#include "host/frontend/http/transport/event_loop.h"
#include "nereid/status.h"

namespace nereid::http {

// Lives from the request until the pool is done; answers if there is still someone to answer.
class PoolCall final : public LoopTask, public ActiveCall {
 public:
  static void Start(KServeContext& context, BlockingPool& pool, Connection& connection,
                    std::function<Status()> work);

 private:
  PoolCall(KServeContext& context, Connection& connection, std::function<Status()> work);

  void OnDisconnect() override { connection_ = nullptr; }

  void RunOnLoop() override;

  KServeContext& context_;
  EventLoop& loop_;
  Connection* connection_;
  std::function<Status()> work_;
  Status status_;
};

}  // namespace nereid::http
