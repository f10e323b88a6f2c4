#include "host/frontend/openai/calls/load_wait.h"

#include <new>
#include <utility>

#include "net/event_loop.h"

namespace nereid::openai {

LoadWait::LoadWait(http::HttpConnection& connection, http::RequestBody body, Handler handler)
    : connection_(&connection), body_(std::move(body)), handler_(std::move(handler)) {}

void LoadWait::Start(ModelDemand& demand, http::HttpConnection& connection,
                     const std::string& model, http::RequestBody body, Handler handler) {
  const auto wait = std::make_shared<LoadWait>(connection, std::move(body), std::move(handler));
  wait->self_ = wait;
  const auto on_ready = [wait, &loop = connection.loop()](Result<ModelDemand::Lease> lease) {
    loop.PostFunction([wait, lease = std::move(lease)] { wait->OnReady(lease); });
  };
  // The call begins first, because the model may be ready before Use returns.
  connection.BeginCall(wait.get());
  const Result<ModelDemand::Lease> lease = demand.Use(model, on_ready);
  if (!lease.ok() || *lease != nullptr) wait->OnReady(lease);
}

void LoadWait::OnReady(const Result<ModelDemand::Lease>& lease) {
  const std::shared_ptr<LoadWait> self = std::move(self_);
  http::HttpConnection* const connection = std::exchange(connection_, nullptr);
  if (connection == nullptr) return;
  connection->BeginCall(nullptr);
  if (lease.ok()) connection->KeepUntilAnswered(*lease);
  try {
    handler_(lease.ok() ? Status::Ok() : lease.status(), std::move(body_));
  } catch (const std::bad_alloc&) {
    connection->FailForMemory(this);
  }
}

}  // namespace nereid::openai
