// See pool_call.h.
#include "host/frontend/http/calls/pool_call.h"

#include <memory>
#include <utility>

#include "host/frontend/http/calls/reply.h"

namespace nereid::http {

void PoolCall::Start(KServeContext& context, BlockingPool& pool, Connection& connection,
                     std::function<Status()> work) {
  auto* call = new PoolCall(context, connection, std::move(work));
  connection.BeginCall(call);
  pool.Run([call] {
    call->status_ = call->work_();
    call->loop_.Post(call);
  });
}

PoolCall::PoolCall(KServeContext& context, Connection& connection, std::function<Status()> work)
    : context_(context),
      loop_(connection.loop()),
      connection_(&connection),
      work_(std::move(work)) {
  context_.num_calls.fetch_add(1);
}

void PoolCall::RunOnLoop() {
  const std::unique_ptr<PoolCall> self(this);
  context_.num_calls.fetch_sub(1);
  if (connection_ == nullptr) return;
  if (status_.ok()) {
    connection_->Reply({}, "");
  } else {
    ReplyError(*connection_, status_, context_.status_of_error);
  }
}

}  // namespace nereid::http
