// TRITONBACKEND_Input and TRITONBACKEND_Output: the tensors of requests and responses. [instance
// thread]
#include "host/core/capi/arguments.h"
#include "host/core/capi/handles.h"
#include "host/core/request/tensor.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::InputBuffer;
using nereid::core::InputBuffers;
using nereid::core::InputTensor;
using nereid::core::RequestedMemoryType;

namespace {

uint64_t TotalBytes(const InputBuffers& buffers) {
  uint64_t total = 0;
  for (const InputBuffer& buffer : buffers) total += buffer.attributes.byte_size;
  return total;
}

// Finds buffer `index`. Index 0 of a tensor without data is an empty buffer.
Status FindBuffer(const InputTensor& input, const InputBuffers& buffers, uint32_t index,
                  const InputBuffer** buffer) {
  static const InputBuffer kEmpty;
  if (index < buffers.size()) {
    *buffer = &buffers[index];
    return Status::Ok();
  }
  *buffer = &kEmpty;
  if (index == 0) return Status::Ok();
  return nereid::InvalidArgError("out of bounds index ", index, ": input '", input.name, "' has ",
                                 buffers.size(), " buffers");
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name,
                                                  TRITONSERVER_DataType* datatype,
                                                  const int64_t** shape, uint32_t* dims_count,
                                                  uint64_t* byte_size, uint32_t* buffer_count) {
  return TRITONBACKEND_InputPropertiesForHostPolicy(input, nullptr, name, datatype, shape,
                                                    dims_count, byte_size, buffer_count);
}

// All output parameters may be null. The shape includes the batch dimension if the model has one.
TRITONSERVER_Error* TRITONBACKEND_InputPropertiesForHostPolicy(
    TRITONBACKEND_Input* input, const char* host_policy_name, const char** name,
    TRITONSERVER_DataType* datatype, const int64_t** shape, uint32_t* dims_count,
    uint64_t* byte_size, uint32_t* buffer_count) {
  NEREID_RETURN_IF_NULL(input);
  const InputTensor& tensor = *FromHandle(input);
  const InputBuffers& buffers = tensor.BuffersFor(host_policy_name);
  if (name != nullptr) *name = tensor.name.c_str();
  if (datatype != nullptr) *datatype = static_cast<TRITONSERVER_DataType>(tensor.data_type);
  if (shape != nullptr) *shape = tensor.shape.data();
  if (dims_count != nullptr) *dims_count = static_cast<uint32_t>(tensor.shape.size());
  if (byte_size != nullptr) *byte_size = TotalBytes(buffers);
  if (buffer_count != nullptr) *buffer_count = static_cast<uint32_t>(buffers.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, const uint32_t index,
                                              const void** buffer, uint64_t* buffer_byte_size,
                                              TRITONSERVER_MemoryType* memory_type,
                                              int64_t* memory_type_id) {
  return TRITONBACKEND_InputBufferForHostPolicy(input, nullptr, index, buffer, buffer_byte_size,
                                                memory_type, memory_type_id);
}

TRITONSERVER_Error* TRITONBACKEND_InputBufferForHostPolicy(
    TRITONBACKEND_Input* input, const char* host_policy_name, const uint32_t index,
    const void** buffer, uint64_t* buffer_byte_size, TRITONSERVER_MemoryType* memory_type,
    int64_t* memory_type_id) {
  NEREID_RETURN_IF_NULL(input);
  NEREID_RETURN_IF_NULL(buffer);
  NEREID_RETURN_IF_NULL(buffer_byte_size);
  NEREID_RETURN_IF_NULL(memory_type);
  NEREID_RETURN_IF_NULL(memory_type_id);
  return AtCBoundary([&]() -> Status {
    InputTensor& tensor = *FromHandle(input);
    const InputBuffer* found = nullptr;
    NEREID_ASSIGN_OR_RETURN(const auto* buffers,
                            tensor.BuffersAt(RequestedMemoryType(memory_type), host_policy_name));
    Status status = FindBuffer(tensor, *buffers, index, &found);
    *buffer = found->base;
    *buffer_byte_size = found->attributes.byte_size;
    *memory_type = found->attributes.memory_type;
    *memory_type_id = found->attributes.memory_type_id;
    return status;
  });
}

// The request owns the attributes.
TRITONSERVER_Error* TRITONBACKEND_InputBufferAttributes(
    TRITONBACKEND_Input* input, const uint32_t index, const void** buffer,
    TRITONSERVER_BufferAttributes** buffer_attributes) {
  NEREID_RETURN_IF_NULL(input);
  NEREID_RETURN_IF_NULL(buffer);
  NEREID_RETURN_IF_NULL(buffer_attributes);
  return AtCBoundary([&]() -> Status {
    InputTensor& tensor = *FromHandle(input);
    const InputBuffer* found = nullptr;
    NEREID_ASSIGN_OR_RETURN(const auto* buffers,
                            tensor.BuffersAt(TRITONSERVER_MEMORY_CPU, nullptr));
    Status status = FindBuffer(tensor, *buffers, index, &found);
    *buffer = found->base;
    *buffer_attributes = ToHandle(const_cast<nereid::core::BufferAttributes*>(&found->attributes));
    return status;
  });
}

TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output* output, void** buffer,
                                               const uint64_t buffer_byte_size,
                                               TRITONSERVER_MemoryType* memory_type,
                                               int64_t* memory_type_id) {
  NEREID_RETURN_IF_NULL(output);
  NEREID_RETURN_IF_NULL(buffer);
  NEREID_RETURN_IF_NULL(memory_type);
  NEREID_RETURN_IF_NULL(memory_type_id);
  return AtCBoundary([&]() -> Status {
    *memory_type = RequestedMemoryType(memory_type);
    NEREID_ASSIGN_OR_RETURN(
        *buffer, FromHandle(output)->AllocateBuffer(buffer_byte_size, memory_type, memory_type_id));
    return Status::Ok();
  });
}

TRITONSERVER_Error* NEREID_OutputLend(TRITONBACKEND_Output* output, const void* base,
                                      const uint64_t byte_size, NEREID_ReleaseFn_t release,
                                      void* release_userp, bool* is_taken) {
  NEREID_RETURN_IF_NULL(output);
  NEREID_RETURN_IF_NULL(base);
  NEREID_RETURN_IF_NULL(release);
  NEREID_RETURN_IF_NULL(is_taken);
  *is_taken = false;
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(
        *is_taken, FromHandle(output)->SetLeasedBuffer(base, byte_size, release, release_userp));
    return Status::Ok();
  });
}

// The response owns the attributes.
TRITONSERVER_Error* TRITONBACKEND_OutputBufferAttributes(
    TRITONBACKEND_Output* output, TRITONSERVER_BufferAttributes** buffer_attributes) {
  NEREID_RETURN_IF_NULL(output);
  NEREID_RETURN_IF_NULL(buffer_attributes);
  *buffer_attributes = ToHandle(&FromHandle(output)->backend_attributes());
  return nullptr;
}

}  // extern "C"
