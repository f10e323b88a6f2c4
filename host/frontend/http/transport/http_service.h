// The interface between transport and endpoints: a service handles the complete requests of a port.
// The transport knows no endpoint, and the endpoints know no socket. [loop thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "host/frontend/http/transport/http_request.h"
#include "host/frontend/http/transport/http_status.h"

namespace nereid::http {

class HttpConnection;

class HttpService {
 public:
  virtual ~HttpService() = default;

  // Answers through `connection`, before it returns or later (HttpConnection::BeginCall). It may
  // take `body`. Every loop of the server calls it, concurrently.
  virtual void Handle(HttpConnection& connection, const RequestHead& head, RequestBody&& body) = 0;

  // Returns false if Handle will refuse the request whatever its body contains. Asked before memory
  // is spent on a large body; Handle is then called at once with an empty one.
  virtual bool AwaitsBody(const HttpConnection&, const RequestHead&) { return true; }

  struct Refusal {
    int status;
    std::string body;
  };
  // The answer to a request that the transport refuses with `status`: malformed, too large (413),
  // or over a limit of the server. `head` may be incomplete.
  virtual Refusal Refuse(const RequestHead&, int status, std::string_view reason) {
    constexpr int kTooLarge = 413;  // Triton answers 400
    return {status == kTooLarge ? 400 : status, ErrorBody(reason)};
  }

  // Returns how many leading bytes of a large body must arrive before posted memory can be acquired
  // for the rest. None means that no posted memory is used.
  virtual std::optional<size_t> NumLeadingBytes(const RequestHead&, uint64_t /*body_bytes*/) {
    return std::nullopt;
  }
  // Acquires posted memory for the rest of the body, once the leading bytes have arrived.
  virtual PostedMemory AcquirePostedMemory(const RequestHead&, uint64_t /*rest_bytes*/) {
    return {};
  }
};

// A request that is answered later. The connection notifies it when the client disconnects.
class InFlightCall {
 public:
  // The client has disconnected, or the server has closed the connection. The connection must not
  // be used any more.
  virtual void OnDisconnect() = 0;
  // The client has read bytes of a stream that waited; `unsent_bytes` of it still wait.
  virtual void OnOutputSent(size_t /*unsent_bytes*/) {}
  // The connection calls this once a second while the call runs.
  virtual void OnSecond() {}

 protected:
  ~InFlightCall() = default;
};

}  // namespace nereid::http
