// See fake_core.h. Functions that every backend calls: errors, log, messages and the API version.
#include "tests/support/fake_core/fake_core.h"

#include <atomic>

#include "tests/support/fake_core/handles.h"

namespace nereid::fake {
namespace {

std::atomic<uint32_t> api_major{TRITONBACKEND_API_VERSION_MAJOR};
std::atomic<uint32_t> api_minor{TRITONBACKEND_API_VERSION_MINOR};

}  // namespace

int NumLiveHandles() {
  return num_live_handles;
}

void SetApiVersion(uint32_t major, uint32_t minor) {
  api_major = major;
  api_minor = minor;
}

std::optional<Error> Take(TRITONSERVER_Error* error) {
  if (error == nullptr) return std::nullopt;
  Error taken = As<ErrorHandle>(error)->error;
  TRITONSERVER_ErrorDelete(error);
  return taken;
}

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* msg) {
  auto* handle = new ErrorHandle;
  handle->error = {code, msg};
  return As<TRITONSERVER_Error>(handle);
}
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) {
  delete As<ErrorHandle>(error);
}
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) {
  return As<ErrorHandle>(error)->error.code;
}
const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) {
  return As<ErrorHandle>(error)->error.message.c_str();
}
bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel) {
  return false;
}
TRITONSERVER_Error* TRITONSERVER_LogMessage(TRITONSERVER_LogLevel, const char*, const int,
                                            const char*) {
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message** message,
                                                              const char* base, size_t byte_size) {
  auto* handle = new MessageHandle;
  handle->json.assign(base, byte_size);
  *message = As<TRITONSERVER_Message>(handle);
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  delete As<MessageHandle>(message);
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message,
                                                        const char** base, size_t* byte_size) {
  *base = As<MessageHandle>(message)->json.data();
  *byte_size = As<MessageHandle>(message)->json.size();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor) {
  *major = api_major;
  *minor = api_minor;
  return nullptr;
}

}  // extern "C"

}  // namespace nereid::fake
