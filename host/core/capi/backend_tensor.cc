// TRITONBACKEND_Input and TRITONBACKEND_Output: tensors as a backend sees them. [instance thread]
#include "host/core/capi/handles.h"
#include "host/core/capi/wished_memory.h"
#include "host/core/request/tensor.h"

using nereid::AtCEdge;
using nereid::FromHandle;
using nereid::InputBuffer;
using nereid::InputBuffers;
using nereid::InputTensor;
using nereid::Status;
using nereid::WishedMemoryType;

namespace {

uint64_t TotalBytes(const InputBuffers& buffers) {
  uint64_t total = 0;
  for (const InputBuffer& buffer : buffers) total += buffer.attributes.byte_size;
  return total;
}

// Buffer `index`; for index 0 of a tensor without data an empty buffer.
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

// Every out parameter may be null. The shape has the batch dimension if the model has one.
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
  return AtCEdge([&]() -> Status {
    InputTensor& tensor = *FromHandle(input);
    const InputBuffer* found = nullptr;
    NEREID_ASSIGN_OR_RETURN(const auto* buffers,
                            tensor.BuffersAt(WishedMemoryType(memory_type), host_policy_name));
    Status status = FindBuffer(tensor, *buffers, index, &found);
    *buffer = found->base;
    *buffer_byte_size = found->attributes.byte_size;
    *memory_type = found->attributes.memory_type;
    *memory_type_id = found->attributes.memory_type_id;
    return status;
  });
}

// The attributes belong to the request.
TRITONSERVER_Error* TRITONBACKEND_InputBufferAttributes(
    TRITONBACKEND_Input* input, const uint32_t index, const void** buffer,
    TRITONSERVER_BufferAttributes** buffer_attributes) {
  NEREID_RETURN_IF_NULL(input);
  NEREID_RETURN_IF_NULL(buffer);
  NEREID_RETURN_IF_NULL(buffer_attributes);
  return AtCEdge([&]() -> Status {
    InputTensor& tensor = *FromHandle(input);
    const InputBuffer* found = nullptr;
    NEREID_ASSIGN_OR_RETURN(const auto* buffers,
                            tensor.BuffersAt(TRITONSERVER_MEMORY_CPU, nullptr));
    Status status = FindBuffer(tensor, *buffers, index, &found);
    *buffer = found->base;
    *buffer_attributes = ToHandle(const_cast<nereid::BufferAttributes*>(&found->attributes));
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
  return AtCEdge([&]() -> Status {
    *memory_type = WishedMemoryType(memory_type);
    NEREID_ASSIGN_OR_RETURN(
        *buffer, FromHandle(output)->AllocateBuffer(buffer_byte_size, memory_type, memory_type_id));
    return Status::Ok();
  });
}

TRITONSERVER_Error* NEREID_OutputLend(TRITONBACKEND_Output* output, const void* base,
                                      const uint64_t byte_size, NEREID_GiveBackFn_t give_back,
                                      void* lender_userp, bool* is_taken) {
  NEREID_RETURN_IF_NULL(output);
  NEREID_RETURN_IF_NULL(base);
  NEREID_RETURN_IF_NULL(give_back);
  NEREID_RETURN_IF_NULL(is_taken);
  *is_taken = false;
  return AtCEdge([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(*is_taken,
                            FromHandle(output)->Lend(base, byte_size, give_back, lender_userp));
    return Status::Ok();
  });
}

// The attributes belong to the response.
TRITONSERVER_Error* TRITONBACKEND_OutputBufferAttributes(
    TRITONBACKEND_Output* output, TRITONSERVER_BufferAttributes** buffer_attributes) {
  NEREID_RETURN_IF_NULL(output);
  NEREID_RETURN_IF_NULL(buffer_attributes);
  *buffer_attributes = ToHandle(&FromHandle(output)->backend_attributes());
  return nullptr;
}

}  // extern "C"
