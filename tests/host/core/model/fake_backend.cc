#include "tests/host/core/model/fake_backend.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/clock.h"
#include "host/core/config/config_loader.h"
#include "host/core/handle/error.h"

namespace nereid::core::test {
namespace {

void Expect(TRITONSERVER_Error* error) {
  const Status status = TakeError(error);
  if (!status.ok()) std::abort();
}

TRITONSERVER_Error* ModelInitialize(TRITONBACKEND_Model* model) {
  FakeBackend::current->Record("model_initialize");
  const auto& callback = FakeBackend::current->model_initialize;
  return ToError(callback ? callback(model) : Status::Ok());
}
TRITONSERVER_Error* ModelFinalize(TRITONBACKEND_Model*) {
  if (FakeBackend::current->finalize) FakeBackend::current->finalize();
  FakeBackend::current->Record("model_finalize");
  return nullptr;
}
TRITONSERVER_Error* InstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  const char* name = nullptr;
  Expect(TRITONBACKEND_ModelInstanceName(instance, &name));
  FakeBackend::current->Record(StrCat("instance_initialize ", name));
  const auto& callback = FakeBackend::current->instance_initialize;
  return ToError(callback ? callback(instance) : Status::Ok());
}
TRITONSERVER_Error* InstanceFinalize(TRITONBACKEND_ModelInstance*) {
  FakeBackend::current->Record("instance_finalize");
  return nullptr;
}
TRITONSERVER_Error* InstanceReady(TRITONBACKEND_ModelInstance* instance) {
  const auto& callback = FakeBackend::current->instance_ready;
  return ToError(callback ? callback(instance) : Status::Ok());
}
TRITONSERVER_Error* Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
                            uint32_t count) {
  FakeBackend::current->Record(StrCat("execute ", count));
  const auto& callback = FakeBackend::current->execute;
  if (callback) return ToError(callback(instance, {requests, requests + count}));
  for (uint32_t i = 0; i < count; ++i) AnswerIdentity(instance, requests[i]);
  return nullptr;
}
uint32_t MaxSerialRequests(TRITONBACKEND_ModelInstance*) {
  return FakeBackend::current->max_serial_requests;
}
TRITONSERVER_Error* ExecuteSerially(TRITONBACKEND_ModelInstance* instance,
                                    TRITONBACKEND_Request** requests, uint32_t count) {
  FakeBackend::current->Record(StrCat("serial ", count));
  for (uint32_t i = 0; i < count; ++i) AnswerIdentity(instance, requests[i]);
  return nullptr;
}
TRITONSERVER_Error* GetPostedInput(TRITONBACKEND_ModelInstance*, uint64_t size_bytes, void** base,
                                   NEREID_ReleaseFn_t* release, void** release_userp) {
  FakeBackend::current->Record(StrCat("post ", size_bytes));
  *base = FakeBackend::current->posted_input(size_bytes);
  *release = [](void* backend) { ++static_cast<FakeBackend*>(backend)->num_released; };
  *release_userp = FakeBackend::current;
  return nullptr;
}
TRITONSERVER_Error* GetAttribute(TRITONBACKEND_Backend*,
                                 TRITONBACKEND_BackendAttribute* attributes) {
  return TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
      attributes, FakeBackend::current->parallel_instances);
}

}  // namespace

FakeBackend* FakeBackend::current = nullptr;

std::vector<std::string> FakeBackend::Calls() {
  std::lock_guard lock(mutex_);
  return calls_;
}

void FakeBackend::Record(const std::string& call) {
  std::lock_guard lock(mutex_);
  calls_.push_back(call);
}

BackendEntryPoints FakeBackend::EntryPoints() {
  BackendEntryPoints entry;
  entry.get_attribute = &GetAttribute;
  entry.model_initialize = &ModelInitialize;
  entry.model_finalize = &ModelFinalize;
  entry.instance_initialize = &InstanceInitialize;
  entry.instance_finalize = &InstanceFinalize;
  entry.instance_execute = &Execute;
  entry.instance_ready = &InstanceReady;
  if (current->max_serial_requests != 0) {
    entry.instance_most_in_turn = &MaxSerialRequests;
    entry.instance_execute_in_turn = &ExecuteSerially;
  }
  if (current->posted_input) entry.instance_offer_input = &GetPostedInput;
  if (current->executes_inline) entry.instance_execute_inline = &Execute;
  return entry;
}

void AnswerIdentity(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) {
  const uint64_t start_ns = SteadyNowNs();
  TRITONBACKEND_Input* input = nullptr;
  const int64_t* shape = nullptr;
  uint32_t dims = 0;
  uint64_t byte_size = 0;
  uint32_t num_buffers = 0;
  Expect(TRITONBACKEND_RequestInputByIndex(request, 0, &input));
  Expect(TRITONBACKEND_InputProperties(input, nullptr, nullptr, &shape, &dims, &byte_size,
                                       &num_buffers));
  TRITONBACKEND_Response* response = nullptr;
  TRITONBACKEND_Output* output = nullptr;
  void* target = nullptr;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  Expect(TRITONBACKEND_ResponseNew(&response, request));
  Expect(
      TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_FP32, shape, dims));
  Expect(TRITONBACKEND_OutputBuffer(output, &target, byte_size, &type, &id));
  for (uint32_t i = 0; i < num_buffers; ++i) {
    const void* buffer = nullptr;
    uint64_t buffer_bytes = 0;
    Expect(TRITONBACKEND_InputBuffer(input, i, &buffer, &buffer_bytes, &type, &id));
    std::memcpy(target, buffer, buffer_bytes);
    target = static_cast<char*>(target) + buffer_bytes;
  }
  const uint64_t end_ns = SteadyNowNs();
  Expect(TRITONBACKEND_ModelInstanceReportStatistics(instance, request, true, start_ns, start_ns,
                                                     end_ns, end_ns));
  Expect(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, nullptr));
  Expect(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

std::string NameOf(TRITONBACKEND_ModelInstance* instance) {
  const char* name = nullptr;
  EXPECT_EQ(TRITONBACKEND_ModelInstanceName(instance, &name), nullptr);
  return name;
}

float ReadFloat(TRITONBACKEND_Request* request, const char* name) {
  TRITONBACKEND_Input* input = nullptr;
  const void* data = nullptr;
  uint64_t byte_size = 0;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  float value = -1;
  EXPECT_TRUE(TakeError(TRITONBACKEND_RequestInput(request, name, &input)).ok()) << name;
  if (input == nullptr) return value;
  EXPECT_TRUE(TakeError(TRITONBACKEND_InputBuffer(input, 0, &data, &byte_size, &type, &id)).ok());
  std::memcpy(&value, data, sizeof(value));
  return value;
}

ModelFixture::ModelFixture() {
  FakeBackend::current = &backend;
  services = std::make_unique<CoreServices>(nullptr, CoreOptions{});
}

ModelFixture::~ModelFixture() {
  for (int num_loaded = num_loads, destroyed = num_destroyed; destroyed != num_loaded;
       destroyed = num_destroyed) {
    num_destroyed.wait(destroyed);
  }
  services.reset();
  FakeBackend::current = nullptr;
}

Result<std::shared_ptr<Model>> ModelFixture::Load(const std::string& json,
                                                  const std::string& model_dir) {
  if (services->backends.List().empty()) {
    NEREID_RETURN_IF_ERROR(services->backends.AddBuiltIn("fake", FakeBackend::EntryPoints()));
  }
  ModelLoadSpec spec;
  spec.model_dir = model_dir;
  NEREID_ASSIGN_OR_RETURN(spec.config, config::ReadModelConfig({"m", "", "", json}));
  ++num_loads;
  spec.on_destroyed = [this] {
    ++num_destroyed;
    num_destroyed.notify_all();
  };
  return Model::Load(std::move(spec), *services);
}

}  // namespace nereid::core::test
