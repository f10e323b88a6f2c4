// TRITONBACKEND_Response and TRITONBACKEND_ResponseFactory: responses of a backend. [any thread,
// one at a time per response]
#include "host/core/capi/handles.h"
#include "host/core/request/infer_request.h"
#include "host/core/request/infer_response.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::InferResponse;
using nereid::core::OutputTensor;
using nereid::core::Parameter;
using nereid::core::ResponseSink;
using nereid::core::ToHandle;

namespace {

TRITONSERVER_Error* NewResponse(TRITONBACKEND_Response** response, ResponseSink* sink) {
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(auto created, InferResponse::New(sink));
    *response = reinterpret_cast<TRITONBACKEND_Response*>(created.release());
    return Status::Ok();
  });
}

TRITONSERVER_Error* AddParameter(TRITONBACKEND_Response* response, const char* name,
                                 Parameter::Value value) {
  constexpr size_t kUsual = 4;
  return AtCBoundary([&] {
    auto& parameters = FromHandle(response)->parameters();
    if (parameters.empty()) parameters.reserve(kUsual);
    parameters.emplace_back(name, std::move(value));
    return Status::Ok();
  });
}

Status CheckSendFlags(uint32_t flags) {
  if ((flags & ~static_cast<uint32_t>(TRITONSERVER_RESPONSE_COMPLETE_FINAL)) == 0) {
    return Status::Ok();
  }
  return nereid::InvalidArgError("send flags: expected 0 or ",
                                 static_cast<int>(TRITONSERVER_RESPONSE_COMPLETE_FINAL), ", got ",
                                 flags);
}

// A sent response belongs to the client, who may delete it at any time.
Status CheckUnsent(const InferResponse& response) {
  if (!response.sent()) return Status::Ok();
  return nereid::InvalidArgError("the response was sent before");
}

void ReadOutput(const OutputTensor& output, TRITONSERVER_DataType* datatype, const int64_t** shape,
                uint64_t* dim_count) {
  if (datatype != nullptr) *datatype = static_cast<TRITONSERVER_DataType>(output.data_type());
  if (shape != nullptr) *shape = output.shape().data();
  if (dim_count != nullptr) *dim_count = output.shape().size();
}

}  // namespace

extern "C" {

// The factory is a reference-counted pointer to the response sink, so creating one allocates
// nothing.
TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory** factory,
                                                     TRITONBACKEND_Request* request) {
  NEREID_RETURN_IF_NULL(factory);
  NEREID_RETURN_IF_DELETED(request);
  ResponseSink* sink = FromHandle(request)->sink();
  sink->AddRef();
  sink->AddSender();
  *factory = ToHandle(sink);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory* factory) {
  NEREID_RETURN_IF_NULL(factory);
  return AtCBoundary([&] {
    ResponseSink* sink = FromHandle(factory);
    sink->DropSender();
    sink->Release();
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory* factory,
                                                           const uint32_t send_flags) {
  NEREID_RETURN_IF_NULL(factory);
  return AtCBoundary([&]() -> Status {
    NEREID_RETURN_IF_ERROR(CheckSendFlags(send_flags));
    return FromHandle(factory)->Send(nullptr, send_flags);
  });
}

TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryIsCancelled(TRITONBACKEND_ResponseFactory* factory,
                                                             bool* is_cancelled) {
  NEREID_RETURN_IF_NULL(factory);
  NEREID_RETURN_IF_NULL(is_cancelled);
  *is_cancelled = FromHandle(factory)->cancelled();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response,
                                              TRITONBACKEND_Request* request) {
  NEREID_RETURN_IF_NULL(response);
  NEREID_RETURN_IF_DELETED(request);
  return NewResponse(response, FromHandle(request)->sink());
}

TRITONSERVER_Error* TRITONBACKEND_ResponseNewFromFactory(TRITONBACKEND_Response** response,
                                                         TRITONBACKEND_ResponseFactory* factory) {
  NEREID_RETURN_IF_NULL(response);
  NEREID_RETURN_IF_NULL(factory);
  return NewResponse(response, FromHandle(factory));
}

TRITONSERVER_Error* TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response* response) {
  if (response == nullptr) return nullptr;
  NEREID_RETURN_IF_DELETED(response);
  return AtCBoundary([&]() -> Status {
    NEREID_RETURN_IF_ERROR(CheckUnsent(*FromHandle(response)));
    delete FromHandle(response);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSetStringParameter(TRITONBACKEND_Response* response,
                                                             const char* name, const char* value) {
  NEREID_RETURN_IF_DELETED(response);
  NEREID_RETURN_IF_NULL(name);
  NEREID_RETURN_IF_NULL(value);
  return AddParameter(response, name, std::string(value));
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSetIntParameter(TRITONBACKEND_Response* response,
                                                          const char* name, const int64_t value) {
  NEREID_RETURN_IF_DELETED(response);
  NEREID_RETURN_IF_NULL(name);
  return AddParameter(response, name, value);
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSetBoolParameter(TRITONBACKEND_Response* response,
                                                           const char* name, const bool value) {
  NEREID_RETURN_IF_DELETED(response);
  NEREID_RETURN_IF_NULL(name);
  return AddParameter(response, name, value);
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSetDoubleParameter(TRITONBACKEND_Response* response,
                                                             const char* name, const double value) {
  NEREID_RETURN_IF_DELETED(response);
  NEREID_RETURN_IF_NULL(name);
  return AddParameter(response, name, value);
}

TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response* response,
                                                 TRITONBACKEND_Output** output, const char* name,
                                                 const TRITONSERVER_DataType datatype,
                                                 const int64_t* shape, const uint32_t dims_count) {
  NEREID_RETURN_IF_DELETED(response);
  NEREID_RETURN_IF_NULL(output);
  NEREID_RETURN_IF_NULL(name);
  if (dims_count > 0) NEREID_RETURN_IF_NULL(shape);
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(OutputTensor * added, FromHandle(response)->AddOutput(
                                                      name, static_cast<nereid::DataType>(datatype),
                                                      {shape, dims_count}));
    *output = ToHandle(added);
    return Status::Ok();
  });
}

// Takes ownership of the response, unless it was sent before. The caller keeps `error`.
TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response,
                                               const uint32_t send_flags,
                                               TRITONSERVER_Error* error) {
  NEREID_RETURN_IF_DELETED(response);
  return AtCBoundary([&]() -> Status {
    NEREID_RETURN_IF_ERROR(CheckUnsent(*FromHandle(response)));
    std::unique_ptr<InferResponse> owned(FromHandle(response));
    NEREID_RETURN_IF_ERROR(CheckSendFlags(send_flags));
    if (error != nullptr) owned->set_error(nereid::core::CopyError(error));
    return InferResponse::Send(std::move(owned), send_flags);
  });
}

TRITONSERVER_Error* TRITONBACKEND_InferenceResponseOutput(TRITONBACKEND_Response* response,
                                                          const uint32_t index, const char** name,
                                                          TRITONSERVER_DataType* datatype,
                                                          const int64_t** shape,
                                                          uint64_t* dim_count) {
  NEREID_RETURN_IF_DELETED(response);
  return AtCBoundary([&]() -> Status {
    const InferResponse& object = *FromHandle(response);
    if (index >= object.num_outputs()) {
      return nereid::InvalidArgError("out of bounds index ", index, ": response has ",
                                     object.num_outputs(), " outputs");
    }
    if (name != nullptr) *name = object.output(index)->name().c_str();
    ReadOutput(*object.output(index), datatype, shape, dim_count);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_InferenceResponseOutputByName(TRITONBACKEND_Response* response,
                                                                const char* name,
                                                                TRITONSERVER_DataType* datatype,
                                                                const int64_t** shape,
                                                                uint64_t* dim_count) {
  NEREID_RETURN_IF_DELETED(response);
  NEREID_RETURN_IF_NULL(name);
  return AtCBoundary([&]() -> Status {
    const OutputTensor* output = FromHandle(response)->FindOutput(name);
    if (output == nullptr) {
      return nereid::NotFoundError("response has no output '", name, "'");
    }
    ReadOutput(*output, datatype, shape, dim_count);
    return Status::Ok();
  });
}

}  // extern "C"
