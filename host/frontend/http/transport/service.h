// What a server port does with complete requests. The transport knows no endpoint, the endpoints
// know no socket; they meet here. [loop thread]
#pragma once

#include "host/frontend/http/transport/request.h"

namespace nereid::http {

class Connection;

class Service {
 public:
  virtual ~Service() = default;

  // Answers through `connection`, before it returns or later (Connection::BeginCall). Called on
  // every loop of the server, concurrently.
  virtual void Handle(Connection& connection, const RequestHead& head, Body body) = 0;
};

// A request that is answered later. The connection tells it when there is nobody left to answer.
class ActiveCall {
 public:
  // The client went away, or the server gave it up; the connection must not be touched any more.
  virtual void OnDisconnect() = 0;

 protected:
  ~ActiveCall() = default;
};

}  // namespace nereid::http
