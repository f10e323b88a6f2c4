// TRITONSERVER_InferenceResponse: the contents of a response. [the thread that owns it]
#include "host/core/request/infer_response.h"

#include "host/core/capi/handles.h"

using nereid::Status;
using nereid::core::FromHandle;
using nereid::core::InferResponse;
using nereid::core::OutputTensor;

namespace {

Status CheckResponseIndex(const char* what, uint32_t index, size_t count) {
  if (index < count) return Status::Ok();
  return nereid::InvalidArgError("out of bounds index ", index, ": response has ", count, " ",
                                 what);
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONSERVER_InferenceResponseDelete(
    TRITONSERVER_InferenceResponse* inference_response) {
  if (inference_response == nullptr) return nullptr;
  NEREID_RETURN_IF_DELETED(inference_response);
  delete FromHandle(inference_response);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseError(
    TRITONSERVER_InferenceResponse* inference_response) {
  NEREID_RETURN_IF_DELETED(inference_response);
  return nereid::core::ToError(FromHandle(inference_response)->error());
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseModel(
    TRITONSERVER_InferenceResponse* inference_response, const char** model_name,
    int64_t* model_version) {
  NEREID_RETURN_IF_DELETED(inference_response);
  const nereid::core::RequestSchema& schema = FromHandle(inference_response)->schema();
  if (model_name != nullptr) *model_name = schema.model_name.c_str();
  if (model_version != nullptr) *model_version = schema.model_version;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseId(
    TRITONSERVER_InferenceResponse* inference_response, const char** request_id) {
  NEREID_RETURN_IF_DELETED(inference_response);
  NEREID_RETURN_IF_NULL(request_id);
  *request_id = FromHandle(inference_response)->request_id().c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameterCount(
    TRITONSERVER_InferenceResponse* inference_response, uint32_t* count) {
  NEREID_RETURN_IF_DELETED(inference_response);
  NEREID_RETURN_IF_NULL(count);
  *count = static_cast<uint32_t>(FromHandle(inference_response)->parameters().size());
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameter(
    TRITONSERVER_InferenceResponse* inference_response, const uint32_t index, const char** name,
    TRITONSERVER_ParameterType* type, const void** vvalue) {
  NEREID_RETURN_IF_DELETED(inference_response);
  const auto& parameters = FromHandle(inference_response)->parameters();
  if (Status status = CheckResponseIndex("parameters", index, parameters.size()); !status.ok()) {
    return nereid::core::ToError(std::move(status));
  }
  if (name != nullptr) *name = parameters[index].name().c_str();
  if (type != nullptr) *type = parameters[index].type();
  if (vvalue != nullptr) *vvalue = parameters[index].pointer();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutputCount(
    TRITONSERVER_InferenceResponse* inference_response, uint32_t* count) {
  NEREID_RETURN_IF_DELETED(inference_response);
  NEREID_RETURN_IF_NULL(count);
  *count = static_cast<uint32_t>(FromHandle(inference_response)->num_outputs());
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutput(
    TRITONSERVER_InferenceResponse* inference_response, const uint32_t index, const char** name,
    TRITONSERVER_DataType* datatype, const int64_t** shape, uint64_t* dim_count, const void** base,
    size_t* byte_size, TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id,
    void** userp) {
  NEREID_RETURN_IF_DELETED(inference_response);
  InferResponse* response = FromHandle(inference_response);
  if (Status status = CheckResponseIndex("outputs", index, response->num_outputs()); !status.ok()) {
    return nereid::core::ToError(std::move(status));
  }
  OutputTensor* output = response->output(index);
  if (name != nullptr) *name = output->name().c_str();
  if (datatype != nullptr) *datatype = static_cast<TRITONSERVER_DataType>(output->data_type());
  if (shape != nullptr) *shape = output->shape().data();
  if (dim_count != nullptr) *dim_count = output->shape().size();
  if (base != nullptr) *base = output->base();
  if (byte_size != nullptr) *byte_size = output->attributes().byte_size;
  if (memory_type != nullptr) *memory_type = output->attributes().memory_type;
  if (memory_type_id != nullptr) *memory_type_id = output->attributes().memory_type_id;
  if (userp != nullptr) *userp = output->buffer_userp();
  return nullptr;
}

// Sets *label to null for a class without a label.
TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutputClassificationLabel(
    TRITONSERVER_InferenceResponse* inference_response, const uint32_t index,
    const size_t class_index, const char** label) {
  NEREID_RETURN_IF_DELETED(inference_response);
  NEREID_RETURN_IF_NULL(label);
  InferResponse* response = FromHandle(inference_response);
  if (Status status = CheckResponseIndex("outputs", index, response->num_outputs()); !status.ok()) {
    return nereid::core::ToError(std::move(status));
  }
  const auto& labels = response->output(index)->spec().labels;
  const bool has_label = class_index < labels.size() && !labels[class_index].empty();
  *label = has_label ? labels[class_index].c_str() : nullptr;
  return nullptr;
}

}  // extern "C"
