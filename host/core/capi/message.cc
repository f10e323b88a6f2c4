// TRITONSERVER_Message. [any thread]
#include <nlohmann/json.hpp>

#include "host/core/capi/handles.h"

using nereid::FromHandle;
using nereid::Message;
using nereid::Status;

extern "C" {

TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message** message,
                                                              const char* base, size_t byte_size) {
  NEREID_RETURN_IF_NULL(message);
  if (byte_size > 0) NEREID_RETURN_IF_NULL(base);
  return nereid::AtCEdge([&]() -> Status {
    std::string text(base, byte_size);
    if (!nlohmann::json::accept(text)) {
      return nereid::InvalidArgError("message of ", byte_size, " bytes is not valid JSON");
    }
    *message = nereid::ToHandle(new Message(std::move(text)));
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  delete FromHandle(message);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message,
                                                        const char** base, size_t* byte_size) {
  NEREID_RETURN_IF_NULL(message);
  NEREID_RETURN_IF_NULL(base);
  NEREID_RETURN_IF_NULL(byte_size);
  const std::string& text = FromHandle(message)->json();
  *base = text.c_str();
  *byte_size = text.size();
  return nullptr;
}

}  // extern "C"
