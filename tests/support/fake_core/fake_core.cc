// See fake_core.h. Handles are pointers to the structs of that header, or to the ones below.
#include "tests/support/fake_core/fake_core.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace fake = nereid::fake;

namespace {

std::atomic<int> num_live_handles{0};
std::atomic<uint32_t> api_major{TRITONBACKEND_API_VERSION_MAJOR};
std::atomic<uint32_t> api_minor{TRITONBACKEND_API_VERSION_MINOR};
std::mutex record_mutex;  // guards what is recorded in requests and instances

struct Counted {
  Counted() { ++num_live_handles; }
  Counted(const Counted&) = delete;
  ~Counted() { --num_live_handles; }
};
struct ErrorHandle : Counted {
  fake::Error error;
};
struct MessageHandle : Counted {
  std::string json;
};
struct FactoryHandle : Counted {
  fake::Request* request;
};
struct OutputHandle {
  fake::Request* request;
  fake::Output output;
  std::unique_ptr<std::byte[]> memory;  // aligned, then offset as the request says
  size_t size_bytes = 0;
};
struct ResponseHandle : Counted {
  fake::Request* request;
  std::vector<std::unique_ptr<OutputHandle>> outputs;
  std::vector<fake::Parameter> parameters;
};
struct StatisticsHandle : Counted {
  fake::Request* request = nullptr;
  bool has_output = false;
  TRITONSERVER_Error* error = nullptr;
};

template <typename To, typename From>
To* As(From* handle) {
  return reinterpret_cast<To*>(handle);
}

TRITONSERVER_Error* Fail(TRITONSERVER_Error_Code code, const std::string& message) {
  return TRITONSERVER_ErrorNew(code, message.c_str());
}

void Record(fake::Request* request, const char* event) {
  const std::lock_guard lock(record_mutex);
  request->events.emplace_back(event);
}

const void* ValueOf(const fake::Parameter& parameter) {
  switch (parameter.type) {
    case TRITONSERVER_PARAMETER_STRING:
      return parameter.string_value.c_str();
    case TRITONSERVER_PARAMETER_INT:
      return &parameter.int_value;
    case TRITONSERVER_PARAMETER_BOOL:
      return &parameter.bool_value;
    default:
      return &parameter.double_value;
  }
}

}  // namespace

namespace nereid::fake {

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

}  // namespace nereid::fake

extern "C" {

// ---- errors, log, messages

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

// ---- backend, model, instance

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor) {
  *major = api_major;
  *minor = api_minor;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendArtifacts(TRITONBACKEND_Backend*,
                                                   TRITONBACKEND_ArtifactType* artifact_type,
                                                   const char** location) {
  *artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = "/backends/fake";
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendName(TRITONBACKEND_Backend*, const char** name) {
  *name = "fake";
  return nullptr;
}
// The backend of a model is the model itself: the fake has no backend of its own.
TRITONSERVER_Error* TRITONBACKEND_ModelBackend(TRITONBACKEND_Model* model,
                                               TRITONBACKEND_Backend** backend) {
  *backend = As<TRITONBACKEND_Backend>(model);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendConfig(TRITONBACKEND_Backend* backend,
                                                TRITONSERVER_Message** backend_config) {
  // The host's own; kept for the process, which is what "not to be deleted" allows.
  static MessageHandle* const kHandle = [] {
    auto* handle = new MessageHandle;
    --num_live_handles;
    return handle;
  }();
  kHandle->json = As<fake::Model>(backend)->backend_config;
  *backend_config = As<TRITONSERVER_Message>(kHandle);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    TRITONBACKEND_BackendAttribute* backend_attributes, bool enabled) {
  *As<bool>(backend_attributes) = enabled;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute*, const TRITONSERVER_InstanceGroupKind, const uint64_t,
    const uint64_t*, const uint64_t) {
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelName(TRITONBACKEND_Model* model, const char** name) {
  *name = As<fake::Model>(model)->name.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelVersion(TRITONBACKEND_Model* model, uint64_t* version) {
  *version = As<fake::Model>(model)->version;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelRepository(TRITONBACKEND_Model* model,
                                                  TRITONBACKEND_ArtifactType* artifact_type,
                                                  const char** location) {
  *artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = As<fake::Model>(model)->directory.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model, const uint32_t,
                                              TRITONSERVER_Message** model_config) {
  const std::string& config = As<fake::Model>(model)->config;
  return TRITONSERVER_MessageNewFromSerializedJson(model_config, config.data(), config.size());
}
TRITONSERVER_Error* TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model* model,
                                                          bool* auto_complete_config) {
  *auto_complete_config = As<fake::Model>(model)->may_complete;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model* model, const uint32_t,
                                                 TRITONSERVER_Message* model_config) {
  As<fake::Model>(model)->config = As<MessageHandle>(model_config)->json;
  ++As<fake::Model>(model)->num_set_config;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelServer(TRITONBACKEND_Model*, TRITONSERVER_Server** server) {
  *server = nullptr;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelState(TRITONBACKEND_Model* model, void** state) {
  *state = As<fake::Model>(model)->state;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelSetState(TRITONBACKEND_Model* model, void* state) {
  As<fake::Model>(model)->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceName(TRITONBACKEND_ModelInstance* instance,
                                                    const char** name) {
  *name = As<fake::Instance>(instance)->name.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance*,
                                                    TRITONSERVER_InstanceGroupKind* kind) {
  *kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceDeviceId(TRITONBACKEND_ModelInstance*,
                                                        int32_t* device_id) {
  *device_id = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance* instance,
                                                     TRITONBACKEND_Model** model) {
  *model = As<fake::Instance>(instance)->model->handle();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance* instance,
                                                     void** state) {
  *state = As<fake::Instance>(instance)->state;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance* instance,
                                                        void* state) {
  As<fake::Instance>(instance)->state = state;
  return nullptr;
}

// ---- statistics

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, const bool success,
    const uint64_t exec_start_ns, const uint64_t compute_start_ns, const uint64_t compute_end_ns,
    const uint64_t exec_end_ns) {
  Record(As<fake::Request>(request), success ? "statistics ok" : "statistics failed");
  const std::lock_guard lock(record_mutex);
  As<fake::Instance>(instance)->request_times_ns.push_back(
      {exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns});
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance* instance, const uint64_t batch_size, const uint64_t exec_start_ns,
    const uint64_t compute_start_ns, const uint64_t compute_end_ns, const uint64_t exec_end_ns) {
  const std::lock_guard lock(record_mutex);
  As<fake::Instance>(instance)->batch_sizes.push_back(batch_size);
  As<fake::Instance>(instance)->batch_times_ns.push_back(
      {exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns});
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    TRITONBACKEND_ModelInstanceResponseStatistics** response_statistics) {
  *response_statistics = As<TRITONBACKEND_ModelInstanceResponseStatistics>(new StatisticsHandle);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics) {
  delete As<StatisticsHandle>(response_statistics);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    TRITONBACKEND_ModelInstanceResponseStatistics*, TRITONBACKEND_ModelInstance*) {
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    TRITONBACKEND_ResponseFactory* response_factory) {
  As<StatisticsHandle>(response_statistics)->request = As<FactoryHandle>(response_factory)->request;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    TRITONBACKEND_ModelInstanceResponseStatistics*, uint64_t) {
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics, uint64_t) {
  As<StatisticsHandle>(response_statistics)->has_output = true;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    TRITONBACKEND_ModelInstanceResponseStatistics*, uint64_t) {
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics, TRITONSERVER_Error* error) {
  As<StatisticsHandle>(response_statistics)->error = error;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportResponseStatistics(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics) {
  const auto& statistics = *As<StatisticsHandle>(response_statistics);
  const char* outcome = statistics.has_output ? "ok" : "empty";
  if (statistics.error != nullptr) {
    outcome = TRITONSERVER_ErrorCode(statistics.error) == TRITONSERVER_ERROR_CANCELLED ? "cancelled"
                                                                                       : "failed";
  }
  const std::lock_guard lock(record_mutex);
  statistics.request->response_statistics.emplace_back(outcome);
  return nullptr;
}

// ---- requests

TRITONSERVER_Error* TRITONBACKEND_RequestId(TRITONBACKEND_Request* request, const char** id) {
  *id = As<fake::Request>(request)->id.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request* request,
                                                     bool* is_cancelled) {
  *is_cancelled = As<fake::Request>(request)->is_cancelled;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request* request,
                                                       uint64_t* id) {
  *id = As<fake::Request>(request)->correlation_id;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationIdString(TRITONBACKEND_Request*, const char**) {
  return Fail(TRITONSERVER_ERROR_INVALID_ARG, "the correlation id is a number");
}
TRITONSERVER_Error* TRITONBACKEND_RequestFlags(TRITONBACKEND_Request* request, uint32_t* flags) {
  *flags = As<fake::Request>(request)->flags;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    TRITONBACKEND_Request* request, uint64_t* timeout) {
  *timeout = As<fake::Request>(request)->timeout_us;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request* request,
                                                        uint32_t* count) {
  *count = static_cast<uint32_t>(As<fake::Request>(request)->parameters.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestParameter(TRITONBACKEND_Request* request,
                                                   const uint32_t index, const char** key,
                                                   TRITONSERVER_ParameterType* type,
                                                   const void** vvalue) {
  const fake::Parameter& parameter = As<fake::Request>(request)->parameters.at(index);
  *key = parameter.name.c_str();
  *type = parameter.type;
  *vvalue = ValueOf(parameter);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request* request,
                                                    uint32_t* count) {
  *count = static_cast<uint32_t>(As<fake::Request>(request)->inputs.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestInput(TRITONBACKEND_Request* request, const char* name,
                                               TRITONBACKEND_Input** input) {
  for (fake::Input& candidate : As<fake::Request>(request)->inputs) {
    if (candidate.name != name) continue;
    *input = As<TRITONBACKEND_Input>(&candidate);
    return nullptr;
  }
  return Fail(TRITONSERVER_ERROR_INVALID_ARG, std::string("no input '") + name + "'");
}
TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request* request,
                                                      const uint32_t index,
                                                      TRITONBACKEND_Input** input) {
  if (index >= As<fake::Request>(request)->inputs.size()) {
    return Fail(TRITONSERVER_ERROR_INVALID_ARG, "index out of range");
  }
  *input = As<TRITONBACKEND_Input>(&As<fake::Request>(request)->inputs[index]);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request,
                                                     uint32_t* count) {
  *count = static_cast<uint32_t>(As<fake::Request>(request)->requested_outputs.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request,
                                                    const uint32_t index,
                                                    const char** output_name) {
  *output_name = As<fake::Request>(request)->requested_outputs.at(index).c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, uint32_t) {
  As<fake::Request>(request)->num_live_handles_at_release = num_live_handles;
  Record(As<fake::Request>(request), "release");
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name,
                                                  TRITONSERVER_DataType* datatype,
                                                  const int64_t** shape, uint32_t* dims_count,
                                                  uint64_t* byte_size, uint32_t* buffer_count) {
  const auto& tensor = *As<fake::Input>(input);
  uint64_t size_bytes = 0;
  for (const std::string& piece : tensor.pieces) size_bytes += piece.size();
  if (name != nullptr) *name = tensor.name.c_str();
  if (datatype != nullptr) *datatype = tensor.datatype;
  if (shape != nullptr) *shape = tensor.shape.data();
  if (dims_count != nullptr) *dims_count = static_cast<uint32_t>(tensor.shape.size());
  if (byte_size != nullptr) *byte_size = size_bytes;
  if (buffer_count != nullptr) *buffer_count = static_cast<uint32_t>(tensor.pieces.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, const uint32_t index,
                                              const void** buffer, uint64_t* buffer_byte_size,
                                              TRITONSERVER_MemoryType* memory_type,
                                              int64_t* memory_type_id) {
  const auto& tensor = *As<fake::Input>(input);
  *buffer = tensor.pieces.at(index).data();
  *buffer_byte_size = tensor.pieces[index].size();
  *memory_type = tensor.memory_type;
  *memory_type_id = 0;
  return nullptr;
}

// ---- responses

TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory** factory,
                                                     TRITONBACKEND_Request* request) {
  auto* handle = new FactoryHandle;
  handle->request = As<fake::Request>(request);
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
  fake::Request* request = As<FactoryHandle>(factory)->request;
  Record(request, "end");
  const std::lock_guard lock(record_mutex);
  request->responses.emplace_back().is_flags_only = true;
  request->responses.back().is_final = send_flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response,
                                              TRITONBACKEND_Request* request) {
  auto* handle = new ResponseHandle;
  handle->request = As<fake::Request>(request);
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
  if (handle.output.name == handle.request->refused_output) {
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
TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response,
                                               const uint32_t send_flags,
                                               TRITONSERVER_Error* error) {
  const std::unique_ptr<ResponseHandle> handle(As<ResponseHandle>(response));
  fake::Response sent;
  for (const auto& output : handle->outputs) {
    const auto* base =
        reinterpret_cast<const char*>(output->memory.get()) + handle->request->output_offset_bytes;
    if (output->memory != nullptr) output->output.bytes.assign(base, output->size_bytes);
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
