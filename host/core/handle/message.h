// TRITONSERVER_Message: a JSON text that crosses the C edge. The bytes handed out live as long as
// the message. [any thread]
#pragma once

#include <string>
#include <utility>

#include "host/core/handle/handle_cast.h"
#include "triton/core/tritonserver.h"

namespace nereid {

class Message {
 public:
  // `json` is trusted to be JSON; texts of strangers are checked where they enter
  // (capi/message.cc).
  explicit Message(std::string json) : json_(std::move(json)) {}
  const std::string& json() const { return json_; }

 private:
  std::string json_;
};

}  // namespace nereid

NEREID_HANDLE(TRITONSERVER_Message, nereid::Message);
