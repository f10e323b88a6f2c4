// A backend that misbehaves on request, for tests of the host's reaction. The model parameter
// `fault` names an entry point (model_initialize, instance_initialize, instance_ready, execute,
// instance_finalize, model_finalize), which then returns an error. With the suffix _throws it
// throws an exception, with _hangs it never returns, with _exits it calls exit(0), and with
// _overflows it overflows the stack of its thread. Other faults are
//   none                      answers OUTPUT0 = INPUT0
//   model_initialize_twice    the first two calls of ModelInitialize in the process fail
//   no_response               releases the requests unanswered
//   late                      answers `delay_ms` after Execute returned, on another thread
//   never                     never releases the requests
//   sends_twice               sends two final responses
//   sends_early               sends a response, then the final flag
//   two_responses             sends two responses, then the final flag
//   flags_only                sends only the final flag
//   releases_twice            releases the requests twice
//   unknown_output            requests an output that the model does not have
//   huge_output               requests an output buffer of 2^62 bytes
//   wrong_size                requests an output buffer of half the bytes that its shape needs
// `--backend-config=hostile,fault=...` names an entry point of the backend itself in the same way:
// initialize, attributes, finalize. With fault=none the attributes prefer three instances.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "nereid/backend.h"

namespace {

using nereid::ResponseHandle;
using nereid::Result;
using nereid::Status;
using nereid::ToError;
using nereid::ToStatus;

Result<std::string> Parameter(TRITONBACKEND_Model* model, const char* name) {
  TRITONSERVER_Message* message = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelConfig(model, 1, &message)));
  const nereid::Message owner(message);
  NEREID_ASSIGN_OR_RETURN(const std::string_view text, owner.Json());
  NEREID_ASSIGN_OR_RETURN(const nereid::ModelConfig config, nereid::ModelConfig::Parse(text));
  return config.parameters().String(name);
}

Result<TRITONBACKEND_Model*> ModelOf(TRITONBACKEND_ModelInstance* instance) {
  TRITONBACKEND_Model* model = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelInstanceModel(instance, &model)));
  return model;
}

// Overflows any stack for a large `depth`.
[[gnu::noinline]] int Recurse(int depth) {
  volatile char frame[1024];
  frame[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : Recurse(depth - 1) + frame[0];
}

// Performs `fault` if it concerns the entry point `entry`.
Status Misbehave(std::string_view fault, std::string_view entry) {
  if (!fault.starts_with(entry)) return {};
  const std::string_view action = fault.substr(entry.size());
  if (action.empty()) return nereid::UnavailableError("hostile: ", entry, " fails as told");
  if (action == "_throws") {
    throw std::runtime_error(nereid::StrCat("hostile: ", entry, " throws as told"));
  }
  if (action == "_exits") std::exit(0);
  if (action == "_overflows") return nereid::InternalError(Recurse(INT_MAX));
  while (action == "_hangs") pause();
  return {};
}

Status Misbehave(TRITONBACKEND_Model* model, std::string_view entry) {
  NEREID_ASSIGN_OR_RETURN(const std::string fault, Parameter(model, "fault"));
  return Misbehave(fault, entry);
}

Status Misbehave(TRITONBACKEND_ModelInstance* instance, std::string_view entry) {
  NEREID_ASSIGN_OR_RETURN(TRITONBACKEND_Model* const model, ModelOf(instance));
  return Misbehave(model, entry);
}

// Returns the backend's own `fault` setting, or an empty string.
Result<std::string> FaultSetting(TRITONBACKEND_Backend* backend) {
  TRITONSERVER_Message* message = nullptr;
  const char* base = nullptr;
  size_t size_bytes = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_BackendConfig(backend, &message)));
  NEREID_RETURN_IF_ERROR(
      ToStatus(TRITONSERVER_MessageSerializeToJson(message, &base, &size_bytes)));
  NEREID_ASSIGN_OR_RETURN(const nereid::Json config, nereid::Json::Parse({base, size_bytes}));
  return std::string(config["cmdline"]["fault"].AsString());
}

Status Misbehave(TRITONBACKEND_Backend* backend, std::string_view entry) {
  NEREID_ASSIGN_OR_RETURN(const std::string fault, FaultSetting(backend));
  return Misbehave(fault, entry);
}

Status FillOutput(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response,
                  const std::string& fault) {
  TRITONBACKEND_Input* handle = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInput(request, "INPUT0", &handle)));
  NEREID_ASSIGN_OR_RETURN(const nereid::TensorView input, nereid::TensorView::Of(handle));
  TRITONBACKEND_Output* output = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseOutput(
      response, &output, fault == "unknown_output" ? "NO_SUCH_OUTPUT" : "OUTPUT0",
      nereid::ToC(input.datatype()), input.shape().data(),
      static_cast<uint32_t>(input.shape().size()))));
  const uint64_t size_bytes = fault == "huge_output"  ? uint64_t{1} << 62
                              : fault == "wrong_size" ? input.size_bytes() / 2
                                                      : input.size_bytes();
  void* base = nullptr;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(
      TRITONBACKEND_OutputBuffer(output, &base, size_bytes, &memory_type, &memory_type_id)));
  if (size_bytes != input.size_bytes()) return {};
  return input.CopyTo({static_cast<std::byte*>(base), input.size_bytes()});
}

void Send(TRITONBACKEND_Request* request, const std::string& fault,
          uint32_t flags = TRITONSERVER_RESPONSE_COMPLETE_FINAL) {
  Result<ResponseHandle> response = nereid::NewResponseHandle(request);
  if (!response.ok()) return;
  const nereid::ErrorHandle error(ToError(FillOutput(request, response->get(), fault)));
  (void)ToStatus(TRITONBACKEND_ResponseSend(response->release(), flags, error.get()));
}

void SendFlags(TRITONBACKEND_Request* request) {
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  if (!ToStatus(TRITONBACKEND_ResponseFactoryNew(&factory, request)).ok()) return;
  (void)ToStatus(
      TRITONBACKEND_ResponseFactorySendFlags(factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
  (void)ToStatus(TRITONBACKEND_ResponseFactoryDelete(factory));
}

void Release(TRITONBACKEND_Request* request) {
  (void)ToStatus(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

Status Execute(TRITONBACKEND_Model* model, std::vector<TRITONBACKEND_Request*> requests) {
  NEREID_ASSIGN_OR_RETURN(const std::string fault, Parameter(model, "fault"));
  NEREID_RETURN_IF_ERROR(Misbehave(fault, "execute"));
  if (fault == "never") return {};
  if (fault == "late") {
    NEREID_ASSIGN_OR_RETURN(const std::string delay_ms, Parameter(model, "delay_ms"));
    const std::chrono::milliseconds delay(std::stoi(delay_ms));
    std::thread([requests, delay] {
      std::this_thread::sleep_for(delay);
      for (TRITONBACKEND_Request* request : requests) {
        Send(request, "none");
        Release(request);
      }
    }).detach();
    return {};
  }
  for (TRITONBACKEND_Request* request : requests) {
    if (fault == "flags_only") {
      SendFlags(request);
    } else if (fault == "sends_early" || fault == "two_responses") {
      Send(request, fault, /*flags=*/0);
      if (fault == "two_responses") Send(request, fault, /*flags=*/0);
      SendFlags(request);
    } else if (fault != "no_response") {
      Send(request, fault);
    }
    if (fault == "sends_twice") Send(request, fault);
    Release(request);
    if (fault == "releases_twice") Release(request);
  }
  return {};
}

}  // namespace

extern "C" {

// Exceptions are not caught here, so that tests verify that the host catches them.
TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  return ToError(Misbehave(backend, "initialize"));
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend) {
  return ToError(Misbehave(backend, "finalize"));
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(
    TRITONBACKEND_Backend* backend, TRITONBACKEND_BackendAttribute* attributes) {
  const Result<std::string> fault = FaultSetting(backend);
  if (!fault.ok() || fault->empty()) return ToError(fault.status());
  // Attributes that were set before the error must be ignored.
  const Status added = ToStatus(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
      attributes, TRITONSERVER_INSTANCEGROUPKIND_CPU, 3, nullptr, 0));
  return ToError(added.ok() ? Misbehave(*fault, "attributes") : added);
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  const Result<std::string> fault = Parameter(model, "fault");
  static std::atomic<int> num_failures{0};
  if (fault.ok() && *fault == "model_initialize_twice" && num_failures++ < 2) {
    return ToError(nereid::UnavailableError("hostile: not yet"));
  }
  return ToError(Misbehave(model, "model_initialize"));
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return ToError(Misbehave(model, "model_finalize"));
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(
    TRITONBACKEND_ModelInstance* instance) {
  return ToError(Misbehave(instance, "instance_initialize"));
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(
    TRITONBACKEND_ModelInstance* instance) {
  return ToError(Misbehave(instance, "instance_finalize"));
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReady(
    TRITONBACKEND_ModelInstance* instance) {
  return ToError(Misbehave(instance, "instance_ready"));
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
    const uint32_t request_count) {
  const Result<TRITONBACKEND_Model*> model = ModelOf(instance);
  if (!model.ok()) return ToError(model.status());
  return ToError(Execute(*model, {requests, requests + request_count}));
}

}  // extern "C"
