#include "request/tensor.h"

#include "base/error.h"
#include "observe/log.h"
#include "request/request_plan.h"
#include "request/response_sink.h"

namespace nereid {

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text + ']';
}

Result<int64_t> ElementCount(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(count, dim, &count)) {
      return InvalidArgError("shape ", ShapeText(shape), " has more than 2^63-1 elements");
    }
  }
  return count;
}

const InputBuffers& InputTensor::BuffersFor(const char* host_policy) const {
  if (host_policy != nullptr) {
    for (const auto& [policy, own_buffers] : policy_buffers) {
      if (policy == host_policy) return own_buffers;
    }
  }
  return buffers;
}

const std::string& OutputTensor::name() const {
  return spec_->name;
}

Result<void*> OutputTensor::AllocateBuffer(uint64_t byte_size, TRITONSERVER_MemoryType* memory_type,
                                           int64_t* memory_type_id) {
  if (allocated_) {
    return AlreadyExistsError("allocated buffer for output '", name(), "' already exists");
  }
  if (sink_->has_ended()) {
    return InvalidArgError("output '", name(), "': the final response was sent before");
  }
  const ResponseCallbacks& callbacks = sink_->callbacks();
  auto* allocator = ToHandle(const_cast<ResponseAllocator*>(callbacks.allocator));
  attributes_.memory_type = *memory_type;
  attributes_.memory_type_id = *memory_type_id;
  NEREID_RETURN_IF_ERROR(TakeError(callbacks.allocator->alloc_fn(
      allocator, name().c_str(), byte_size, *memory_type, *memory_type_id,
      callbacks.allocator_userp, &base_, &buffer_userp_, &attributes_.memory_type,
      &attributes_.memory_type_id)));
  allocated_ = true;
  attributes_.byte_size = byte_size;
  if (auto* attributes_fn = callbacks.allocator->buffer_attributes_fn; attributes_fn != nullptr) {
    NEREID_RETURN_IF_ERROR(
        TakeError(attributes_fn(allocator, name().c_str(), ToHandle(&attributes_),
                                callbacks.allocator_userp, buffer_userp_)));
  }
  *memory_type = attributes_.memory_type;
  *memory_type_id = attributes_.memory_type_id;
  return base_;
}

OutputTensor::~OutputTensor() {
  if (!allocated_) return;
  const ResponseAllocator* allocator = sink_->callbacks().allocator;
  const Status status = TakeError(allocator->release_fn(
      ToHandle(const_cast<ResponseAllocator*>(allocator)), base_, buffer_userp_,
      attributes_.byte_size, attributes_.memory_type, attributes_.memory_type_id));
  if (!status.ok()) {
    NEREID_LOG_ERROR("failed to release the buffer of output '", name(), "': ", status.message());
  }
}

}  // namespace nereid
