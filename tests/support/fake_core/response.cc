// Responses to the fake host, their outputs, and response factories.
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "nereid/ext/leased_output.h"
#include "tests/support/fake_core/handles.h"

using namespace nereid::fake;

namespace {

struct OutputHandle {
  Request* request;
  Output output;
  // starts at an aligned address; the output starts at the request's offset
  std::unique_ptr<std::byte[]> memory;
  size_t size_bytes = 0;
  const void* leased_base = nullptr;
  std::function<void()> release;  // empty if no memory is leased

  ~OutputHandle() {
    if (release) release();
  }
};
struct ResponseHandle : LiveHandleCounter {
  Request* request;
  std::vector<std::unique_ptr<OutputHandle>> outputs;
  std::vector<Parameter> parameters;
};

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory** factory,
                                                     TRITONBACKEND_Request* request) {
  auto* handle = new FactoryHandle;
  handle->request = As<Request>(request);
  *factory = As<TRITONBACKEND_ResponseFactory>(handle);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory* factory) {
  delete As<FactoryHandle>(factory);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryIsCancelled(TRITONBACKEND_ResponseFactory* factory,
                                                             bool* is_cancelled) {
  *is_cancelled = As<FactoryHandle>(factory)->request->is_cancelled;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory* factory,
                                                           const uint32_t send_flags) {
  Request* request = As<FactoryHandle>(factory)->request;
  Record(request, "end");
  const std::lock_guard lock(record_mutex);
  request->responses.emplace_back().is_flags_only = true;
  request->responses.back().is_final = send_flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response,
                                              TRITONBACKEND_Request* request) {
  auto* handle = new ResponseHandle;
  handle->request = As<Request>(request);
  *response = As<TRITONBACKEND_Response>(handle);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseNewFromFactory(TRITONBACKEND_Response** response,
                                                         TRITONBACKEND_ResponseFactory* factory) {
  return TRITONBACKEND_ResponseNew(response,
                                   As<TRITONBACKEND_Request>(As<FactoryHandle>(factory)->request));
}
TRITONSERVER_Error* TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response* response) {
  delete As<ResponseHandle>(response);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSetStringParameter(TRITONBACKEND_Response* response,
                                                             const char* name, const char* value) {
  As<ResponseHandle>(response)->parameters.push_back({name, TRITONSERVER_PARAMETER_STRING, value});
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSetIntParameter(TRITONBACKEND_Response* response,
                                                          const char* name, const int64_t value) {
  As<ResponseHandle>(response)->parameters.push_back({name, TRITONSERVER_PARAMETER_INT, "", value});
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSetBoolParameter(TRITONBACKEND_Response* response,
                                                           const char* name, const bool value) {
  As<ResponseHandle>(response)->parameters.push_back(
      {name, TRITONSERVER_PARAMETER_BOOL, "", 0, value});
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSetDoubleParameter(TRITONBACKEND_Response* response,
                                                             const char* name, const double value) {
  As<ResponseHandle>(response)->parameters.push_back(
      {name, TRITONSERVER_PARAMETER_DOUBLE, "", 0, false, value});
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response* response,
                                                 TRITONBACKEND_Output** output, const char* name,
                                                 const TRITONSERVER_DataType datatype,
                                                 const int64_t* shape, const uint32_t dims_count) {
  auto& outputs = As<ResponseHandle>(response)->outputs;
  outputs.push_back(std::make_unique<OutputHandle>());
  outputs.back()->request = As<ResponseHandle>(response)->request;
  outputs.back()->output = {name, datatype, {shape, shape + dims_count}, ""};
  *output = As<TRITONBACKEND_Output>(outputs.back().get());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output* output, void** buffer,
                                               const uint64_t buffer_byte_size,
                                               TRITONSERVER_MemoryType* memory_type,
                                               int64_t* memory_type_id) {
  auto& handle = *As<OutputHandle>(output);
  if (handle.output.name == handle.request->failing_output) {
    return Fail(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for '" + handle.output.name + "'");
  }
  handle.size_bytes = buffer_byte_size;
  handle.memory =
      std::make_unique<std::byte[]>(buffer_byte_size + handle.request->output_offset_bytes);
  *buffer = handle.memory.get() + handle.request->output_offset_bytes;
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  return nullptr;
}
TRITONSERVER_Error* NEREID_OutputLend(TRITONBACKEND_Output* output, const void* base,
                                      const uint64_t byte_size, NEREID_ReleaseFn_t release,
                                      void* release_userp, bool* is_accepted) {
  auto& handle = *As<OutputHandle>(output);
  *is_accepted = handle.request->accepts_leased_outputs;
  if (!*is_accepted) return nullptr;
  handle.leased_base = base;
  handle.size_bytes = byte_size;
  handle.release = [release, release_userp] { release(release_userp); };
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response,
                                               const uint32_t send_flags,
                                               TRITONSERVER_Error* error) {
  const std::unique_ptr<ResponseHandle> handle(As<ResponseHandle>(response));
  Response sent;
  for (const auto& output : handle->outputs) {
    const auto* base =
        reinterpret_cast<const char*>(output->memory.get()) + handle->request->output_offset_bytes;
    if (output->memory != nullptr) output->output.bytes.assign(base, output->size_bytes);
    if (output->release) {
      output->output.bytes.assign(static_cast<const char*>(output->leased_base),
                                  output->size_bytes);
      handle->request->lease_releases.push_back(std::exchange(output->release, nullptr));
    }
    sent.outputs[output->output.name] = output->output;
  }
  sent.parameters = handle->parameters;
  sent.is_final = send_flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL;
  if (error != nullptr) sent.error = As<ErrorHandle>(error)->error;
  Record(handle->request, error == nullptr ? "response" : "error");
  const std::lock_guard lock(record_mutex);
  handle->request->responses.push_back(std::move(sent));
  return nullptr;
}

}  // extern "C"
