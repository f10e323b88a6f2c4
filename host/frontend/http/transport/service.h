// What a server port does with complete requests. The transport knows no endpoint, the endpoints
// know no socket; they meet here. [loop thread]
#pragma once

#include <cstdint>
#include <optional>

#include "host/frontend/http/transport/request.h"

namespace nereid::http {

class Connection;

class Service {
 public:
  virtual ~Service() = default;

  // Answers through `connection`, before it returns or later (Connection::BeginCall). Called on
  // every loop of the server, concurrently.
  virtual void Handle(Connection& connection, const RequestHead& head, Body body) = 0;

  // Of a large body: how many of its first bytes do not go to a place that a model may offer for
  // the rest. None: no model is asked.
  virtual std::optional<size_t> FirstPart(const RequestHead&, uint64_t /*body_bytes*/) {
    return std::nullopt;
  }
  // A place for the rest, once the first part is here.
  virtual BodyPlace OfferPlace(const RequestHead&, uint64_t /*rest_bytes*/) { return {}; }
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
