// A request whose compressed body is being decompressed. A large one takes several steps, between
// which the loop serves its other connections. [loop thread]
#pragma once

#include <functional>
#include <memory>

#include "host/frontend/http/bodies/compression.h"
#include "host/frontend/http/transport/http_connection.h"
#include "net/event_loop.h"

namespace nereid::http {

class DecompressingCall final : private InFlightCall, private net::LoopTask {
 public:
  // Answers the request, whose body is now plain. It does not run if the client has disconnected.
  using Handler = std::function<void(RequestBody body)>;

  // Calls `handler`, before it returns or later, or answers with an error.
  static void Start(HttpConnection& connection, RequestBody packed, Handler handler);

 private:
  DecompressingCall(HttpConnection& connection, RequestBody packed, Handler handler);
  ~DecompressingCall() = default;
  void OnDisconnect() override { connection_ = nullptr; }
  void RunOnLoop() override;
  bool Step();
  Status WithHint(const Status& status) const;

  HttpConnection* connection_;  // null once the client has disconnected
  net::EventLoop& loop_;
  const RequestBody packed_;
  const Handler handler_;
  Decompression decompression_;
};

}  // namespace nereid::http
