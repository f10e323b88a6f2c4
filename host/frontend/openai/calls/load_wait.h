// A request that waits until its model is loaded. [loop thread]
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "host/frontend/http/transport/http_connection.h"
#include "host/frontend/model_demand.h"
#include "nereid/status.h"

namespace nereid::openai {

class LoadWait final : public http::InFlightCall, public std::enable_shared_from_this<LoadWait> {
 public:
  // Answers the request, whose model is loaded, or answers that it is not.
  using Handler = std::function<void(const Status& status, http::RequestBody body)>;

  // Calls `handler`, before it returns or later, unless the client has disconnected. The model,
  // which `demand` knows, stays loaded until the request is answered.
  static void Start(ModelDemand& demand, http::HttpConnection& connection, const std::string& model,
                    http::RequestBody body, Handler handler);

  LoadWait(http::HttpConnection& connection, http::RequestBody body, Handler handler);

 private:
  void OnDisconnect() override { connection_ = nullptr; }
  void OnReady(const Result<ModelDemand::Lease>& lease);

  http::HttpConnection* connection_;  // null once the client has disconnected
  http::RequestBody body_;
  const Handler handler_;
  std::shared_ptr<LoadWait> self_;  // while the connection refers to the object
};

}  // namespace nereid::openai
