// TRITONSERVER_BufferAttributes. [one thread at a time]
#include "host/core/memory/buffer_attributes.h"

#include <cstring>

#include "host/core/capi/handles.h"

using nereid::Status;
using nereid::core::BufferAttributes;
using nereid::core::FromHandle;

extern "C" {

TRITONSERVER_Error* TRITONSERVER_BufferAttributesNew(
    TRITONSERVER_BufferAttributes** buffer_attributes) {
  NEREID_RETURN_IF_NULL(buffer_attributes);
  return nereid::core::AtCBoundary([&] {
    *buffer_attributes = ToHandle(new BufferAttributes);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesDelete(
    TRITONSERVER_BufferAttributes* buffer_attributes) {
  delete FromHandle(buffer_attributes);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetMemoryTypeId(
    TRITONSERVER_BufferAttributes* buffer_attributes, int64_t memory_type_id) {
  NEREID_RETURN_IF_NULL(buffer_attributes);
  FromHandle(buffer_attributes)->memory_type_id = memory_type_id;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetMemoryType(
    TRITONSERVER_BufferAttributes* buffer_attributes, TRITONSERVER_MemoryType memory_type) {
  NEREID_RETURN_IF_NULL(buffer_attributes);
  FromHandle(buffer_attributes)->memory_type = memory_type;
  return nullptr;
}

// Copies the 64 bytes of the handle; null removes it.
TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetCudaIpcHandle(
    TRITONSERVER_BufferAttributes* buffer_attributes, void* cuda_ipc_handle) {
  NEREID_RETURN_IF_NULL(buffer_attributes);
  return nereid::core::AtCBoundary([&] {
    auto& ipc_handle = FromHandle(buffer_attributes)->cuda_ipc_handle;
    ipc_handle.reset();
    if (cuda_ipc_handle == nullptr) return Status::Ok();
    ipc_handle = std::make_shared<BufferAttributes::CudaIpcHandle>();
    std::memcpy(ipc_handle->data(), cuda_ipc_handle, ipc_handle->size());
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetByteSize(
    TRITONSERVER_BufferAttributes* buffer_attributes, size_t byte_size) {
  NEREID_RETURN_IF_NULL(buffer_attributes);
  FromHandle(buffer_attributes)->byte_size = byte_size;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesMemoryTypeId(
    TRITONSERVER_BufferAttributes* buffer_attributes, int64_t* memory_type_id) {
  NEREID_RETURN_IF_NULL(buffer_attributes);
  NEREID_RETURN_IF_NULL(memory_type_id);
  *memory_type_id = FromHandle(buffer_attributes)->memory_type_id;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesMemoryType(
    TRITONSERVER_BufferAttributes* buffer_attributes, TRITONSERVER_MemoryType* memory_type) {
  NEREID_RETURN_IF_NULL(buffer_attributes);
  NEREID_RETURN_IF_NULL(memory_type);
  *memory_type = FromHandle(buffer_attributes)->memory_type;
  return nullptr;
}

// Sets *cuda_ipc_handle to null if there is none.
TRITONSERVER_Error* TRITONSERVER_BufferAttributesCudaIpcHandle(
    TRITONSERVER_BufferAttributes* buffer_attributes, void** cuda_ipc_handle) {
  NEREID_RETURN_IF_NULL(buffer_attributes);
  NEREID_RETURN_IF_NULL(cuda_ipc_handle);
  const auto& ipc_handle = FromHandle(buffer_attributes)->cuda_ipc_handle;
  *cuda_ipc_handle = ipc_handle == nullptr ? nullptr : ipc_handle->data();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesByteSize(
    TRITONSERVER_BufferAttributes* buffer_attributes, size_t* byte_size) {
  NEREID_RETURN_IF_NULL(buffer_attributes);
  NEREID_RETURN_IF_NULL(byte_size);
  *byte_size = FromHandle(buffer_attributes)->byte_size;
  return nullptr;
}

}  // extern "C"
