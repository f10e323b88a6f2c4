// Tensors of a request and a response: their properties and references to buffers of the client or
// the backend. Data is copied only between GPU and host memory. [the thread that owns the request
// or response]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/inline_vector.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/memory/buffer_attributes.h"
#include "host/core/memory/owned_memory.h"
#include "nereid/data_type.h"
#include "nereid/ext/leased_output.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid::core {

struct OutputSpec;
class ResponseSink;

using Shape = InlineVector<int64_t, 6>;

// Formats a shape as in error messages: "[-1,16]".
std::string ShapeText(std::span<const int64_t> shape);
// The number of elements. INVALID_ARG if it does not fit 63 bits. All dimensions must be >= 0.
Result<int64_t> ElementCount(std::span<const int64_t> shape);

// A part of an input's data. The client keeps the bytes valid until the request is released.
struct InputBuffer {
  const void* base = nullptr;
  BufferAttributes attributes;
};
using InputBuffers = InlineVector<InputBuffer, 1>;

// A copy of an input's buffers in host memory, for an instance on the CPU.
struct HostCopy {
  InputBuffers buffers;
  std::shared_ptr<OwnedMemory> memory;
};

struct InputTensor {
  std::string name;
  DataType data_type = DataType::kInvalid;
  Shape client_shape;                          // set by the client, with the batch dimension
  bool raw = false;                            // shape and type are deduced from the model
  std::string raw_name;                        // the client's name of a raw input
  std::shared_ptr<const uint32_t> raw_length;  // data of the first buffer of a raw BYTES input
  InputBuffers buffers;
  // Buffers that replace `buffers` on the instances of a host policy, with its name. Almost always
  // empty.
  std::vector<std::pair<std::string, InputBuffers>> policy_buffers;

  // Set by InferRequest::Prepare.
  int spec_index = -1;  // index in RequestSchema::inputs
  Shape shape;          // seen by the backend: with batch dimension and reshape
  uint64_t byte_size = 0;

  // Set between execution and release if `buffers` are on a GPU and the instance is on the CPU.
  MemoryManager* host_memory = nullptr;       // allocates copies; null if none are needed
  std::shared_ptr<const HostCopy> host_copy;  // null until it is requested

  const InputBuffers& BuffersFor(const char* host_policy) const;
  // Like BuffersFor, for a backend that requests this memory type. If host_memory is set and the
  // backend does not request GPU memory, returns a copy in host memory, which is pinned if
  // possible. Errors name the input.
  Result<const InputBuffers*> BuffersAt(TRITONSERVER_MemoryType requested, const char* host_policy);
  bool HasGpuBuffer() const;
  Status CopyToHost();
};

// An output of a response. Its buffer comes from the client's allocator and is returned to it when
// the response is deleted.
class OutputTensor {
 public:
  // `shape` is the shape that the client sees, with the reshape of `spec` undone.
  OutputTensor(ResponseSink* sink, const OutputSpec* spec, DataType data_type, Shape shape)
      : sink_(sink), spec_(spec), data_type_(data_type), shape_(std::move(shape)) {}
  ~OutputTensor();
  OutputTensor(const OutputTensor&) = delete;
  OutputTensor& operator=(const OutputTensor&) = delete;

  const OutputSpec& spec() const { return *spec_; }
  const std::string& name() const;
  DataType data_type() const { return data_type_; }
  const Shape& shape() const { return shape_; }
  const void* base() const { return base_; }
  void* buffer_userp() const { return buffer_userp_; }
  BufferAttributes& attributes() { return attributes_; }
  // The attributes of the buffer that the backend writes.
  BufferAttributes& backend_attributes() {
    return host_memory_ == nullptr ? attributes_ : host_attributes_;
  }

  // Allocates `byte_size` bytes with the client's allocator, if possible at *memory_type and
  // *memory_type_id, which return the actual location. ALREADY_EXISTS if the output has a buffer.
  // If outputs are kept in host memory and the client's buffer is on a GPU that the backend did not
  // request, the result is a temporary host buffer until CopyToClient.
  Result<void*> AllocateBuffer(uint64_t byte_size, TRITONSERVER_MemoryType* memory_type,
                               int64_t* memory_type_id);
  // Makes `byte_size` bytes of the backend at `base` the buffer of the output (a leased output).
  // Returns false and leaves the output without a buffer if the client's allocator does not accept
  // them. `release_fn` is called when the client no longer needs the bytes. Same errors as
  // AllocateBuffer.
  Result<bool> SetLeasedBuffer(const void* base, uint64_t byte_size, NEREID_ReleaseFn_t release_fn,
                               void* release_userp);
  // Copies the temporary host buffer, if there is one, to the client's buffer. Called before the
  // response is delivered.
  Status CopyToClient();

 private:
  Status CheckNoBuffer() const;
  ResponseSink* const sink_;      // outlives this object: the response has a reference
  const OutputSpec* const spec_;  // in the schema of the model
  const DataType data_type_;
  const Shape shape_;
  bool allocated_ = false;
  void* base_ = nullptr;
  void* buffer_userp_ = nullptr;
  BufferAttributes attributes_;
  std::shared_ptr<OwnedMemory> host_memory_;  // temporary buffer; null: the backend writes to base_
  BufferAttributes host_attributes_;          // of host_memory_
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONBACKEND_Input, nereid::core::InputTensor);
NEREID_HANDLE(TRITONBACKEND_Output, nereid::core::OutputTensor);
