#include "host/core/request/tensor.h"

#include "host/core/handle/error.h"
#include "host/core/memory/owned_memory.h"
#include "host/core/observe/log.h"
#include "host/core/request/request_schema.h"
#include "host/core/request/response_sink.h"

namespace nereid::core {
namespace {

// A leased output while the client uses it. The reference to the sink keeps the model, and with it
// the backend's code, loaded.
struct Lease {
  ResponseSinkRef sink;
  NEREID_ReleaseFn_t release_fn;
  void* release_userp;

  static void End(void* lease) {
    const std::unique_ptr<Lease> self(static_cast<Lease*>(lease));
    CallReleaseFunction(self->release_fn, self->release_userp);
  }
};

}  // namespace

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

Result<const InputBuffers*> InputTensor::BuffersAt(TRITONSERVER_MemoryType requested,
                                                   const char* host_policy) {
  const InputBuffers* const own = &BuffersFor(host_policy);
  if (host_memory == nullptr || requested == TRITONSERVER_MEMORY_GPU || own != &buffers) return own;
  if (host_copy == nullptr) {
    Status status = CopyToHost();
    if (!status.ok()) return std::move(status).WithContext(StrCat("input '", name, "'"));
  }
  return &host_copy->buffers;
}

Status InputTensor::CopyToHost() {
  constexpr MemoryLocation kPinned{TRITONSERVER_MEMORY_CPU_PINNED, 0};
  size_t total_bytes = 0;
  for (const InputBuffer& buffer : buffers) total_bytes += buffer.attributes.byte_size;
  auto copy = std::make_shared<HostCopy>();
  NEREID_ASSIGN_OR_RETURN(copy->memory, OwnedMemory::Allocate(host_memory, kPinned, total_bytes));
  char* to = copy->memory->base();
  for (const InputBuffer& buffer : buffers) {
    const BufferAttributes& from = buffer.attributes;
    NEREID_RETURN_IF_ERROR(CopyMemory(to, copy->memory->location(), buffer.base,
                                      {from.memory_type, from.memory_type_id}, from.byte_size));
    BufferAttributes attributes;
    attributes.byte_size = from.byte_size;
    attributes.memory_type = copy->memory->location().type;
    copy->buffers.push_back({to, attributes});
    to += from.byte_size;
  }
  host_copy = std::move(copy);
  return Status::Ok();
}

bool InputTensor::HasGpuBuffer() const {
  for (const InputBuffer& buffer : buffers) {
    if (buffer.attributes.memory_type == TRITONSERVER_MEMORY_GPU) return true;
  }
  return false;
}

const std::string& OutputTensor::name() const {
  return spec_->name;
}

Status OutputTensor::CheckNoBuffer() const {
  if (allocated_) {
    return AlreadyExistsError("allocated buffer for output '", name(), "' already exists");
  }
  if (sink_->has_ended()) {
    return InvalidArgError("output '", name(), "': the final response was sent before");
  }
  return Status::Ok();
}

Result<void*> OutputTensor::AllocateBuffer(uint64_t byte_size, TRITONSERVER_MemoryType* memory_type,
                                           int64_t* memory_type_id) {
  NEREID_RETURN_IF_ERROR(CheckNoBuffer());
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
  if (base_ == nullptr && byte_size > 0) {
    attributes_.byte_size = 0;  // the backend may send the response anyway; it has no data then
    return InternalError("output '", name(), "': the response allocator gave no memory for ",
                         byte_size, " bytes");
  }
  const bool is_gpu_requested = *memory_type == TRITONSERVER_MEMORY_GPU;
  if (sink_->keeps_outputs_in_host_memory() && !is_gpu_requested &&
      attributes_.memory_type == TRITONSERVER_MEMORY_GPU) {
    NEREID_ASSIGN_OR_RETURN(host_memory_, OwnedMemory::Allocate(nullptr, {}, byte_size));
    host_attributes_.byte_size = byte_size;
  }
  *memory_type = backend_attributes().memory_type;
  *memory_type_id = backend_attributes().memory_type_id;
  return host_memory_ == nullptr ? base_ : host_memory_->base();
}

Result<bool> OutputTensor::SetLeasedBuffer(const void* base, uint64_t byte_size,
                                           NEREID_ReleaseFn_t release_fn, void* release_userp) {
  NEREID_RETURN_IF_ERROR(CheckNoBuffer());
  const ResponseCallbacks& callbacks = sink_->callbacks();
  if (callbacks.allocator->accept_lease_fn == nullptr) return false;
  std::unique_ptr<Lease> lease(new Lease{{}, release_fn, release_userp});
  sink_->AddRef();
  lease->sink = ResponseSinkRef(sink_);
  buffer_userp_ = callbacks.allocator->accept_lease_fn(name().c_str(), base, byte_size, &Lease::End,
                                                       lease.get(), callbacks.allocator_userp);
  if (buffer_userp_ == nullptr) return false;
  (void)lease.release();  // the allocator owns it now and calls Lease::End
  base_ = const_cast<void*>(base);
  allocated_ = true;
  attributes_.byte_size = byte_size;
  return true;
}

Status OutputTensor::CopyToClient() {
  if (host_memory_ == nullptr) return Status::Ok();
  const auto memory = std::exchange(host_memory_, nullptr);
  Status status = CopyMemory(base_, {attributes_.memory_type, attributes_.memory_type_id},
                             memory->base(), memory->location(), memory->byte_size());
  return std::move(status).WithContext(StrCat("output '", name(), "'"));
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

}  // namespace nereid::core
