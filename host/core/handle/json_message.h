// TRITONSERVER_Message: a JSON text that is passed through the C API. The returned bytes are valid
// as long as the message exists. [any thread]
#pragma once

#include <string>
#include <utility>

#include "host/core/handle/handle_cast.h"
#include "triton/core/tritonserver.h"

namespace nereid::core {

class JsonMessage {
 public:
  // `json` must be valid JSON. capi/values.cc checks texts that come from third parties.
  explicit JsonMessage(std::string json) : json_(std::move(json)) {}
  const std::string& json() const { return json_; }

 private:
  std::string json_;
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONSERVER_Message, nereid::core::JsonMessage);
