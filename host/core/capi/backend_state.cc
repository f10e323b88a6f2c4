// TRITONBACKEND_State: implicit states of sequence models. The sequence owns the object behind a
// handle. [instance thread]
#include "host/core/capi/arguments.h"
#include "host/core/capi/handles.h"
#include "host/core/request/infer_request.h"
#include "host/core/request/sequence_states.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::InferRequest;
using nereid::core::StateTensor;
using nereid::core::ToHandle;

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_StateNew(TRITONBACKEND_State** state,
                                           TRITONBACKEND_Request* request, const char* name,
                                           const TRITONSERVER_DataType datatype,
                                           const int64_t* shape, const uint32_t dims_count) {
  NEREID_RETURN_IF_NULL(state);
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(name);
  *state = nullptr;
  return AtCBoundary([&]() -> Status {
    const InferRequest* object = FromHandle(request);
    const nereid::core::HostInputs* inputs = object->host_inputs();
    if (inputs == nullptr || inputs->states == nullptr) {
      return nereid::InvalidArgError("unable to add state '", name,
                                     "'. State configuration is missing for model '",
                                     object->schema().model_name, "'.");
    }
    NEREID_ASSIGN_OR_RETURN(StateTensor * found, inputs->states->FindOutput(name));
    const auto type = static_cast<nereid::DataType>(datatype);
    NEREID_RETURN_IF_ERROR(found->SetNextTypeAndShape(type, {shape, dims_count}));
    *state = ToHandle(found);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_StateUpdate(TRITONBACKEND_State* state) {
  NEREID_RETURN_IF_NULL(state);
  FromHandle(state)->Update();
  return nullptr;
}

// The memory has the type that the backend requested, or is CPU memory.
TRITONSERVER_Error* TRITONBACKEND_StateBuffer(TRITONBACKEND_State* state, void** buffer,
                                              const uint64_t buffer_byte_size,
                                              TRITONSERVER_MemoryType* memory_type,
                                              int64_t* memory_type_id) {
  NEREID_RETURN_IF_NULL(state);
  NEREID_RETURN_IF_NULL(buffer);
  NEREID_RETURN_IF_NULL(memory_type);
  NEREID_RETURN_IF_NULL(memory_type_id);
  return AtCBoundary([&]() -> Status {
    StateTensor& tensor = *FromHandle(state);
    const nereid::core::MemoryLocation requested{nereid::core::RequestedMemoryType(memory_type),
                                                 *memory_type_id};
    NEREID_ASSIGN_OR_RETURN(*buffer, tensor.Buffer(buffer_byte_size, requested));
    *memory_type = tensor.attributes().memory_type;
    *memory_type_id = tensor.attributes().memory_type_id;
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_StateBufferAttributes(
    TRITONBACKEND_State* state, TRITONSERVER_BufferAttributes** buffer_attributes) {
  NEREID_RETURN_IF_NULL(state);
  NEREID_RETURN_IF_NULL(buffer_attributes);
  *buffer_attributes = ToHandle(&FromHandle(state)->attributes());
  return nullptr;
}

}  // extern "C"
